"""Arguments of all commands; what several of them share stands in ``parser_shared``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from snacs import __version__
from snacs.cli.parser_compare import add_compare
from snacs.cli.parser_files import add_file_commands
from snacs.cli.parser_reproduce import add_reproduce
from snacs.cli.parser_shared import (
    add_training,
    fraction,
    of_data,
    of_goal,
    of_ignore,
    of_network,
    of_options,
    of_output,
    of_work,
)
from snacs.cli.parser_train import add_train
from snacs.errors import closest

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
            allow_abbrev=False,
        )

    network, data, goal, options, work = of_network(), of_data(), of_goal(), of_options(), of_work()
    ignore, shown = of_ignore(), of_output()
    add(
        "layers",
        "Show what would be pruned, what not, and why: a dry run that needs no data.",
        "  snacs layers vgg16\n  snacs layers mypackage.net:build --shape 3,64,64",
        of_network(weights="its weights, .safetensors (random ones: only shapes are shown)"),
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
    add_training(prune)
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
    add_training(retrain)
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
    pruned = of_network(
        "zoo name, package.module:factory, a .snacs file or the folder of a `snacs prune`",
        "its pruned weights, .safetensors; files and folders hold their own (bench: the zoo's)",
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
    demo.add_argument("--target", type=fraction, default=0.8, help="fraction to remove (0.8)")
    demo.add_argument("--run", type=Path, default=Path("runs/demo"), help="folder (runs/demo)")
    return parser


class _Raw(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of descriptions and examples."""


class _Parser(argparse.ArgumentParser):
    """Says where to look after a usage error, and which option may have been meant."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            chosen = next(a for a in self._actions if a.dest == "command").choices
            command = dict(chosen or {})[found.command]
            hint = closest(unknown[0].split("=")[0], command._option_string_actions, most=1)
            text = (
                f"{command.prog} has no option {unknown[0]!r}.{hint} See {command.prog} --help.\n"
            )
            command.exit(2, text)
        return found

    def error(self, message: str) -> None:  # type: ignore[override]
        self.print_usage()
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help.\n")
