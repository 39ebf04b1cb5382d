"""Arguments of all commands. Options that commands share stand in parent parsers, once."""

from __future__ import annotations

import argparse
from pathlib import Path

from snacs import __version__
from snacs.cli.parser_compare import add_compare
from snacs.cli.parser_files import add_file_commands
from snacs.cli.parser_reproduce import add_reproduce
from snacs.cli.parser_train import add_train
from snacs.config import ALLOCATIONS, PRESETS, SCORES

_ABOUT = """\
Prune a PyTorch network by what its connections carry.

  snacs demo                                    see it at work, in a minute, on embedded data
  snacs layers resnet56                         what would be pruned, what not, and why
  snacs prune resnet56 --weights w.safetensors --data cifar10 --target 0.7
  snacs prune mypackage.net:build --weights w.safetensors --data images/ --target 70%
  snacs compare resnet56 --targets 0.4,0.6,0.7

A network is a name from the zoo (small-conv, small-resnet, vgg16, resnet56, resnet50) or
package.module:factory. Every command has --help with examples.
"""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser: argparse.ArgumentParser = _Parser(
        prog="snacs", description=_ABOUT, formatter_class=_Raw
    )
    parser.add_argument("--version", action="version", version=f"snacs {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def add(
        name: str, summary: str, examples: str, *parents: argparse.ArgumentParser
    ) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=f"examples:\n{examples}",
            parents=list(parents),
            formatter_class=_Raw,
        )

    network, data, goal, options, work = _network(), _data(), _goal(), _options(), _work()
    ignore, shown = _ignore(), _shown()
    add(
        "layers",
        "Show what would be pruned, what not, and why: a dry run that needs no data.",
        "  snacs layers vgg16\n  snacs layers mypackage.net:build --shape 3,64,64",
        _network(weights="its weights, .safetensors (random ones: only shapes are shown)"),
        ignore,
        shown,
    ).add_argument(
        "--shape",
        metavar="C,H,W",
        help="shape of one input image; zoo networks know theirs",
    )
    add(
        "plan",
        "Decide which connections go, and save the decision; the network is not changed.",
        "  snacs plan resnet56 --weights resnet56.safetensors --data cifar10 --target 0.7\n"
        "  snacs plan vgg16 --weights vgg16.safetensors --data cifar10 --tolerance 0.01",
        network,
        ignore,
        data,
        goal,
        options,
        work,
        shown,
    )
    prune = add(
        "prune",
        "Plan, mask, repair and, if asked, retrain; write the pruned weights.",
        "  snacs prune resnet56 --weights resnet56.safetensors --data cifar10 --target 0.7\n"
        "  snacs prune mypackage.net:build --weights w.safetensors --data images/ --target 0.7\n"
        "  snacs prune vgg16 --weights v.safetensors --data cifar10 --target 90% --retrain 5\n\n"
        "Interrupted? The same command goes on where it stopped.",
        network,
        ignore,
        data,
        goal,
        options,
        work,
        shown,
    )
    prune.add_argument("--retrain", type=int, default=0, metavar="EPOCHS", help="epochs (none)")
    _training(prune)
    retrain = add(
        "retrain",
        "Retrain the network of a finished `snacs prune` run, with its masks on.",
        "  snacs retrain runs/resnet56 --epochs 5\n"
        "  snacs retrain runs/vgg16 --epochs 10 --recipe short\n\n"
        "It starts from the masked and repaired weights, whatever was retrained before, and\n"
        "writes pruned.safetensors and result.json anew.",
        shown,
    )
    retrain.add_argument("run", type=Path, metavar="RUN", help="run folder of `snacs prune`")
    retrain.add_argument("--epochs", type=int, required=True, help="how many epochs")
    _training(retrain)
    add_train(add, shown)
    add_compare(add, network, ignore, data, work, shown)
    report = add(
        "report",
        "Show what a run did to each layer, and why.",
        "  snacs report runs/resnet56\n"
        "  snacs report runs/resnet56 -o report.html --compare runs/compare-resnet56\n"
        "  snacs report runs/resnet56 --json",
        shown,
    )
    report.add_argument("run", type=Path, metavar="RUN", help="run folder")
    report.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="the HTML file (RUN/report.html)"
    )
    report.add_argument(
        "--compare", type=Path, metavar="RUN", help="a run of `snacs compare` to show beside"
    )
    figure = add(
        "figure",
        "Draw a figure for a paper from run folders, as SVG, PDF or PNG.",
        "  snacs figure curves runs/resnet56 --out curves.pdf\n"
        "  snacs figure layers runs/snacs runs/mint --out layers.svg\n"
        "  snacs figure masks runs/resnet56 --layer layer3.0.conv1 --out masks.png\n"
        "  snacs figure runtime runtime.json --out runtime.pdf",
        shown,
    )
    figure.add_argument("kind", choices=["curves", "layers", "masks", "runtime"], help="which")
    figure.add_argument(
        "source", type=Path, nargs="+", metavar="RUN", help="run folders; for runtime its JSON"
    )
    figure.add_argument("--out", type=Path, required=True, metavar="FILE", help=".svg, .pdf, .png")
    figure.add_argument(
        "--layer", action="append", default=[], metavar="NAME", help="layers whose masks to draw"
    )
    figure.add_argument("--title", help="above the figure (none)")
    pruned = _network(
        "zoo name, package.module:factory or a .snacs file; bench: a run folder, too",
        "its pruned weights, .safetensors; a .snacs file or a run folder holds its own (bench: "
        "those that `snacs prune` would take)",
    )
    add_file_commands(add, pruned, shown)
    fetch = add(
        "data",
        "Fetch and check a data set.",
        "  snacs data cifar10\n"
        "  snacs data cifar10 --url https://mirror.example/cifar-10-binary.tar.gz\n"
        "  snacs data cifar10 --source ~/Downloads/cifar-10-binary.tar.gz",
        shown,
    )
    fetch.add_argument("name", choices=["cifar10"], help="which data set")
    fetch.add_argument("--url", help="a mirror of the official archive")
    fetch.add_argument("--source", type=Path, help="an archive or folder that is already here")
    fetch.add_argument("--to", type=Path, help="data folder ($SNACS_DATA or ~/.cache/snacs/data)")
    add_reproduce(add, shown)
    demo = add(
        "demo",
        "Train, prune, repair and retrain a small residual network on embedded digits.",
        "  snacs demo\n  snacs demo --seeds 3 --target 0.8",
        shown,
    )
    demo.add_argument("--seeds", type=int, default=1, help="runs with different seeds (1)")
    demo.add_argument("--target", type=_fraction, default=0.8, help="fraction to remove (0.8)")
    demo.add_argument("--run", type=Path, default=Path("runs/demo"), help="folder (runs/demo)")
    return parser


def _network(
    which: str = "zoo name or package.module:factory",
    weights: str = "its trained weights, .safetensors (NET.safetensors or NET-*.safetensors in "
    "$SNACS_WEIGHTS or ~/.cache/snacs/weights)",
) -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("network")
    group.add_argument("network", metavar="NET", help=which)
    group.add_argument("--weights", type=Path, metavar="FILE", help=weights)
    return parent


def _ignore() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="NAME",
        help="layer or pattern to keep whole",
    )
    return parent


def _data() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("data")
    group.add_argument(
        "--data",
        metavar="DATA",
        help="digits, cifar10[:folder], a folder of class folders (in train/ and test/ or val/, if "
        "they are divided), or an .npz file with x and y (or x_train, y_train, x_test, …); of "
        "data that is not divided a fifth of each class is held out (what the zoo's network was "
        "trained on)",
    )
    group.add_argument("--images", type=int, metavar="N", help="calibration images (1000)")
    group.add_argument(
        "--size",
        type=int,
        metavar="PIXELS",
        help="side of the images of a folder (the zoo network's; else theirs, if all are equal "
        "squares, or 224)",
    )
    group.add_argument("--mean", metavar="M,M,M", help="normalisation (what the weights carry)")
    group.add_argument("--std", metavar="S,S,S", help="normalisation (what the weights carry)")
    return parent


def _goal() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("how far")
    group.add_argument(
        "--target",
        type=_fraction,
        metavar="T",
        help="fraction of the weights to remove: 0.7 or 70%%",
    )
    group.add_argument(
        "--tolerance",
        type=_fraction,
        metavar="T",
        help="instead: how much of its SVM accuracy a layer may lose; the fraction follows",
    )
    group.add_argument(
        "--budget", choices=["parameters", "macs"], default="parameters", help="what T counts"
    )
    return parent


def _options() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("method (nothing here needs to be set)")
    group.add_argument("--preset", choices=list(PRESETS), default="default", help="(default)")
    group.add_argument("--score", choices=SCORES, help="(information; paper: acmi)")
    group.add_argument(
        "--allocation",
        choices=ALLOCATIONS,
        help="how the target is shared out (tempered, whole filters uniform; paper: svm)",
    )
    group.add_argument(
        "--granularity", choices=["connection", "filter"], help="what goes (connection)"
    )
    group.add_argument(
        "--no-repair",
        action="store_true",
        help="mask only: no least squares, no BatchNorm; what stays is then chosen to serve as is",
    )
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="any option of snacs.Config, as JSON: --set view=layer --set shifts=8",
    )
    return parent


def _work() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("work")
    group.add_argument(
        "--run",
        type=Path,
        metavar="FOLDER",
        help="run folder (runs/NET; compare: runs/compare-NET)",
    )
    group.add_argument("--seed", type=int, default=0, help="(0)")
    group.add_argument("--jobs", type=int, metavar="N", help="worker processes (one per core)")
    return parent


def _training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--recipe",
        default="short",
        help="how to retrain, by name (short: the dense network teaches); also brief, scratch and "
        "the paper's train-NET and retrain-NET, squeezed to the epochs",
    )
    parser.add_argument("--batch-size", type=int, default=128, help="images per step (128)")


def _shown() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print facts for machines")
    group.add_argument("--quiet", action="store_true", help="no progress")
    group.add_argument(
        "--no-color", action="store_true", help="no colours, like the variable NO_COLOR"
    )
    return parent


def _fraction(text: str) -> float:
    """0.7 or 70%; range is checked where it is used, with a better message."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a fraction like 0.7 or 70%") from None


class _Raw(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of descriptions and examples."""


class _Parser(argparse.ArgumentParser):
    """Says where to look after a usage error."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.print_usage()
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help.\n")
