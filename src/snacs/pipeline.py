"""``plan`` and ``prune``: what the public API does, in order. No maths, no argument parsing."""

from __future__ import annotations

import copy
import hashlib
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from snacs.config import Config, Goal
from snacs.files import read_json, write_json
from snacs.limits import check_goal
from snacs.network import masking
from snacs.network.batches import Forward, size_of, tensors_of
from snacs.network.calibration import gather
from snacs.network.cost import Accuracy, Cost, accuracy, cost
from snacs.network.layers import Ignore, find_structure
from snacs.network.repair import RepairReport, RepairStep
from snacs.network.repair import repair_ as repair_network_
from snacs.network.sequential import LayerRepair
from snacs.planning import Job, make_plan, plan_key
from snacs.plans import Plan
from snacs.reporting.progress import Watch, watching
from snacs.store import Run, key_of
from snacs.training import History, ProgressRow, Recipe, train_
from snacs.training import recipe as recipe_of

Images = Iterable[Any]
Folder = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class Pruned:
    """What :func:`prune` returns: the masked, repaired network and how it came about.

    ``accuracy`` holds the accuracy on ``test=`` before and after each step, ``history`` the epochs
    of retraining, ``notes`` what could not be done. Each is empty where nothing was asked for.
    """

    model: nn.Module
    plan: Plan
    repair: RepairReport | None
    accuracy: dict[str, Accuracy]
    history: History | None
    notes: tuple[str, ...]

    @property
    def cost(self) -> Cost:
        """Weights, MACs and bytes of the pruned network, per layer and in total."""
        return cost(self.plan.structure, self.plan.masks)

    def facts(self) -> dict[str, Any]:
        """The outcome as plain JSON: what ``result.json`` keeps and reports show."""
        found = self.cost
        return {
            "pruned": found.pruned,
            "weights": found.weights,
            "weights_kept": found.weights_kept,
            "macs": found.macs,
            "macs_kept": found.macs_kept,
            "macs_compacted": found.macs_compacted,
            "bytes": found.dense_bytes,
            "bytes_csr": found.csr_bytes,
            "bytes_csr_narrow": found.csr_bytes_narrow,
            "index_bytes": list(found.index_bytes),
            "accuracy": {step: measured._asdict() for step, measured in self.accuracy.items()},
            "divergence": None
            if self.repair is None
            else {"masked": self.repair.before, "repaired": self.repair.after},
            "epochs": [] if self.history is None else [asdict(row) for row in self.history.rows],
            "layers": [asdict(row) for row in found.layers],
            "notes": list(self.notes),
            "facts": self.plan.facts,
        }


def plan(
    model: nn.Module,
    images: Images,
    *,
    target: float | None = None,
    tolerance: float | None = None,
    budget: str = "parameters",
    preset: str = "default",
    forward: Forward | None = None,
    ignore: Sequence[Ignore] = (),
    run: Folder | Run | None = None,
    seed: int = 0,
    jobs: int | None = None,
    progress: bool | Watch | None = None,
    **options: Any,
) -> Plan:
    """Decide which connections go. Never touches the model.

    Parameters
    ----------
    model : nn.Module
        Any trained network. It is read in eval mode; its own mode is restored.
    images : iterable of batches
        ``(x, y)`` pairs, or ``x`` alone: then the network's own predictions serve as labels.
        At most ``count=1000`` of them (balanced over classes) are kept.
    target : float
        Fraction of all Conv + Linear weights to remove, in (0, 1).
    tolerance : float
        Instead of a target: the fraction of SVM accuracy that each layer may lose.
    budget : "parameters" or "macs"
        What the target counts.
    preset : "default" or "paper"
        Where the options start from; ``**options`` changes any of :class:`snacs.Config`.
    forward : function of model and batch
        For networks with several inputs or unusual outputs; returns class scores.
    ignore : names, patterns or module types
        Layers that are not to be pruned.
    run : folder
        Keeps every stage, so that the same call resumes after an interruption.
    jobs : int
        Worker processes; by default one per core where the work is worth it.
    progress : bool or function
        None shows bars in a terminal only.

    Returns
    -------
    Plan
    """
    goal = Goal(target=target, tolerance=tolerance, budget=budget)
    config = Config.preset(preset, **options)
    check_goal(goal, config)
    with _opened(run) as folder, watching(progress) as watch:
        job = make_job(
            model, images, goal, config, folder, watch,
            forward=forward, ignore=ignore, seed=seed, jobs=jobs,
        )  # fmt: skip
        return make_plan(job)


def prune(
    model: nn.Module,
    images: Images,
    *,
    target: float | None = None,
    tolerance: float | None = None,
    budget: str = "parameters",
    preset: str = "default",
    forward: Forward | None = None,
    ignore: Sequence[Ignore] = (),
    bn_images: Images | None = None,
    train: Any = None,
    recipe: Recipe | str = "short",
    validation: Images | None = None,
    test: Images | None = None,
    run: Folder | Run | None = None,
    seed: int = 0,
    jobs: int | None = None,
    progress: bool | Watch | None = None,
    **options: Any,
) -> Pruned:
    """Plan, mask, repair and (with ``train=``) retrain a copy of the network.

    Takes what :func:`plan` takes, and besides:

    Parameters
    ----------
    bn_images : iterable of batches
        Augmented images for the BatchNorm statistics; they need no labels.
    train : iterable of batches, or function of the epoch that returns one
        Training images for one retraining pass; none, and there is no retraining.
    recipe : Recipe or name
        How to retrain; ``snacs.RECIPES`` lists the names.
    validation : iterable of batches
        Chooses the best epoch; without it the last epoch is the result.
    test : iterable of batches
        Measures accuracy before and after each step; never used for a choice.

    Returns
    -------
    Pruned
        ``model`` is a masked copy: the masks hold through any training loop,
        :func:`snacs.bake_` makes them permanent.
    """
    goal = Goal(target=target, tolerance=tolerance, budget=budget)
    config = Config.preset(preset, **options)
    check_goal(goal, config)
    with _opened(run) as folder, watching(progress) as watch:
        job = make_job(
            model, images, goal, config, folder, watch,
            forward=forward, ignore=ignore, seed=seed, jobs=jobs,
        )  # fmt: skip
        made = make_plan(job)
        meter = _Meter(folder, test, watch, forward)
        meter.measure("dense", model)
        pruned = copy.deepcopy(model)
        notes = apply_(pruned, made)
        meter.measure("pruned", pruned)
        report = _repaired_(job, made, pruned, bn_images)
        if report is not None:
            meter.measure("repaired", pruned)
        history = None
        if train is not None:
            chosen = recipe_of(recipe) if isinstance(recipe, str) else recipe
            key = key_of(start=fingerprint(pruned), recipe=chosen.as_dict(), seed=seed)
            history = train_(
                pruned,
                train,
                recipe=chosen,
                validation=validation,
                folder=folder.folder / "training" / key[:12],
                seed=seed,
                forward=forward,
                progress=epochs_watch(watch, "retrain"),
            )
            meter.measure("retrained", pruned)
        return Pruned(pruned, made, report, meter.seen, history, (*made.notes, *notes))


def apply_(model: nn.Module, plan: Plan) -> list[str]:
    """Put the plan's masks on the model, as parametrizations; returns what could not be silenced.

    The dense weights stay underneath: :func:`snacs.remove_` brings them back,
    :func:`snacs.bake_` makes the zeros permanent.
    """
    return masking.apply_(model, plan.masks, structure=plan.structure, silence=plan.config.silence)


def retrain_(
    model: nn.Module,
    train: Any,
    *,
    validation: Images | None = None,
    recipe: Recipe | str = "short",
    teacher: nn.Module | None = None,
    folder: Folder | None = None,
    seed: int = 0,
    forward: Forward | None = None,
    progress: bool | Watch | None = None,
) -> History:
    """Train a (masked) model in place: one explicit loop, or write your own.

    ``train`` is a re-iterable of batches or a function of the epoch that returns one; ``folder``
    keeps a checkpoint per epoch, and the same call goes on from the last of them.
    """
    with watching(progress) as watch:
        return train_(
            model,
            train,
            recipe=recipe_of(recipe) if isinstance(recipe, str) else recipe,
            validation=validation,
            teacher=teacher,
            folder=None if folder is None else Path(folder),
            seed=seed,
            forward=forward,
            progress=epochs_watch(watch, "retrain"),
        )


def repair_(
    model: nn.Module,
    images: Images,
    *,
    forward: Forward | None = None,
    dense: nn.Module | None = None,
    bn_images: Images | None = None,
    count: int = 1000,
    seed: int = 0,
    progress: bool | Watch | None = None,
    **options: Any,
) -> RepairReport:
    """Solve a masked model's kept weights by least squares, then its BatchNorm statistics.

    No labels and no gradients: every layer is made to return what the dense network returns. The
    dense weights are still there under the masks; after training, pass ``dense=``.
    """
    config = Config.preset("default", **options)
    with watching(progress) as watch:
        calibration = gather(
            images, model, count=count, batch=config.batch, seed=seed, forward=forward
        )
        structure = find_structure(model, calibration.batches[0], forward=forward)
        return repair_network_(
            model,
            calibration.batches,
            structure=structure,
            forward=forward,
            dense=dense,
            ridge=config.ridge,
            least_squares=config.repair,
            batchnorm=config.batchnorm,
            bn_images=bn_images,
            progress=lambda done, total, name: watch("repair", done, total, name),
        )


def _opened(run: Folder | Run | None) -> Run:
    return run if isinstance(run, Run) else Run(run)


def make_job(
    model: nn.Module,
    images: Images,
    goal: Goal,
    config: Config,
    run: Run,
    watch: Watch,
    *,
    forward: Forward | None = None,
    ignore: Sequence[Ignore] = (),
    seed: int = 0,
    jobs: int | None = None,
    place: str = "plan",
) -> Job:
    """Sample the images, find the layers, and gather all that the stages of a plan share."""
    calibration = gather(
        images,
        model,
        count=config.count,
        batch=config.batch,
        seed=seed,
        forward=forward,
        progress=lambda done, _: watch("images", min(done, config.count), config.count),
    )
    structure = find_structure(model, calibration.batches[0], forward=forward, ignore=ignore)
    facts = {
        "model": fingerprint(model),
        "images": calibration.sha256,
        "versions": versions(),
        "threads": torch.get_num_threads(),
    }
    return Job(
        model, structure, calibration, config, goal, run, watch, seed, jobs, forward, facts, place
    )


def _repaired_(
    job: Job, made: Plan, model: nn.Module, bn_images: Images | None
) -> RepairReport | None:
    """Repair the masked model, or read the repaired weights from the run folder."""
    config = job.config
    if not (config.repair or config.batchnorm):
        return None
    key = key_of(plan=plan_key(job), bn=digest_of(bn_images or ())[0])

    def fill(folder: Path) -> None:
        report = repair_network_(
            model,
            job.calibration.batches,
            structure=made.structure,
            forward=job.forward,
            ridge=config.ridge,
            least_squares=config.repair,
            batchnorm=config.batchnorm,
            bn_images=bn_images,
            progress=lambda done, total, name: job.watch("repair", done, total, name),
        )
        save_file(_plain(model.state_dict()), folder / "masked.safetensors")
        write_json(folder / "repair.json", asdict(report))

    folder = job.run.once("repaired", key, fill)
    model.load_state_dict(load_file(folder / "masked.safetensors"))
    facts = read_json(folder / "repair.json")
    return RepairReport(
        tuple(LayerRepair(**row) for row in facts["layers"]),
        tuple(RepairStep(**row) for row in facts["steps"]),
        facts["images"],
        tuple(facts["notes"]),
    )


@dataclass
class _Meter:
    """Measures accuracy once per set of weights and keeps it in the run folder."""

    run: Run
    images: Images | None
    watch: Watch
    forward: Forward | None

    def __post_init__(self) -> None:
        self.seen: dict[str, Accuracy] = {}
        self._digest, self._count = digest_of(self.images or ())

    def measure(self, name: str, model: nn.Module) -> None:
        if self.images is None:
            return
        images = self.images

        def fill(folder: Path) -> None:
            found = accuracy(
                model,
                images,
                forward=self.forward,
                progress=lambda done: self.watch(f"test {name}", done, self._count),
            )
            write_json(folder / "accuracy.json", found._asdict())

        key = key_of(weights=fingerprint(model), test=self._digest)
        folder = self.run.once(f"accuracy/{name}", key, fill)
        self.seen[name] = Accuracy(**read_json(folder / "accuracy.json"))


def epochs_watch(watch: Watch, stage: str) -> Callable[[ProgressRow], None]:
    """Turn the rows of a training loop into progress."""

    def show(row: ProgressRow) -> None:
        batches = row.batches or 1
        done = (row.epoch - 1) * batches + (row.batch if row.batches else 1)
        words = f"epoch {row.epoch}/{row.epochs}, loss {row.loss:.3f}, accuracy {row.accuracy:.1%}"
        if row.validation is not None:
            words += f", validation {row.validation:.1%}"
        watch(stage, done, row.epochs * batches, words)

    return show


def fingerprint(model: nn.Module) -> str:
    """SHA-256 over names, types, shapes and values of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """What a result was made with."""
    names = ("snacs", "torch", "numpy", "scikit-learn", "numba")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def digest_of(images: Images) -> tuple[str, int]:
    """SHA-256 over all tensors of all batches, and how many images there are."""
    digest, count = hashlib.sha256(), 0
    for batch in images:
        count += size_of(batch)
        for tensor in tensors_of(batch):
            digest.update(_bytes(tensor))
    return digest.hexdigest(), count


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data


def _plain(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that own their memory: safetensors refuses shared ones."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
