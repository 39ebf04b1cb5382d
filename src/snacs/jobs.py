"""One piece of work: a network, its images and options, and the keys that name them."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from snacs.config import Config, Goal
from snacs.errors import InputError, closest
from snacs.network.batches import (
    Forward,
    describe,
    evaluating,
    logits_of,
    move,
    size_of,
    tensors_of,
)
from snacs.network.batches import run as run_network
from snacs.network.calibration import Calibration, gather
from snacs.network.layers import Ignore, find_structure
from snacs.network.masking import check_network
from snacs.reporting.progress import Watch
from snacs.store import Run, key_of
from snacs.values import Structure

Images = Iterable[Any]


@dataclass(frozen=True, eq=False)
class Job:
    """All that the stages of one plan share."""

    model: nn.Module
    structure: Structure
    calibration: Calibration
    config: Config
    goal: Goal
    run: Run
    watch: Watch
    seed: int
    jobs: int | None
    forward: Forward | None
    facts: Mapping[str, Any]
    place: str = "plan"
    lesson: Calibration | None = None
    """Images to exchange kernels on, with option ``exchange``."""

    @property
    def plan_key(self) -> str:
        """The key of the finished plan: everything counts."""
        learnt = {} if self.lesson is None else {"lesson": self.lesson.sha256}
        return self.key(*self.config.as_dict(), goal=asdict(self.goal), **learnt)

    def key(self, *options: str, **more: Any) -> str:
        """A key of the model, the images, the seed and the named options."""
        chosen = self.config.as_dict()
        return key_of(
            version=self.facts["versions"]["snacs"],
            model=self.facts["model"],
            outputs=self.facts["outputs"],
            images=self.facts["images"],
            structure=asdict(self.structure),
            seed=self.seed,
            options={name: chosen[name] for name in options},
            **more,
        )


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
    exchange_images: Images | None = None,
) -> Job:
    """Sample the images, find the layers, and gather all that the stages of a plan share."""
    _check(model, seed, jobs)
    calibration = gather(
        images,
        model,
        count=config.count,
        batch=config.batch,
        seed=seed,
        forward=forward,
        progress=lambda done, _: watch("images", min(done, config.count), config.count),
    )
    again = images if exchange_images is None else exchange_images
    lesson = lesson_of(again, model, config, seed=seed, forward=forward, watch=watch)
    structure = find_structure(model, calibration.batches[0], forward=forward, ignore=ignore)
    _check_names(structure, config)
    facts = {
        "model": fingerprint(model),
        "outputs": _outputs_of(model, calibration.batches[0], forward),
        "images": calibration.sha256,
        "input_shape": list(next(tensors_of(calibration.batches[0])).shape[1:]),
        "versions": versions(),
        "threads": torch.get_num_threads(),
    }
    return Job(
        model, structure, calibration, config, goal, run, watch, seed, jobs, forward, facts, place,
        lesson,
    )  # fmt: skip


def lesson_of(
    images: Images,
    model: nn.Module,
    config: Config,
    *,
    seed: int,
    forward: Forward | None = None,
    watch: Watch,
) -> Calibration | None:
    """The images that option ``exchange`` asks for, mixed and in memory; None without it."""
    if not config.exchange:
        return None
    if isinstance(images, Iterator):
        raise InputError(
            "'exchange' reads the images once more, and these can be read only once. Pass a list "
            "or a loader instead, or exchange_images=, some images of its own."
        )
    return gather(
        images,
        model,
        count=config.exchange,
        batch=config.batch,
        seed=seed,
        forward=forward,
        classes_needed=False,
        progress=lambda done, total: watch("to exchange", done, total),
    )


def _check(model: Any, seed: Any, jobs: Any) -> None:
    check_network(model)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise InputError(f"'seed' must be a whole number of at least 0. Got {seed!r}.")
    if jobs is not None and (not isinstance(jobs, int) or isinstance(jobs, bool) or jobs < 1):
        raise InputError(f"'jobs' must be a whole number of at least 1, or None. Got {jobs!r}.")


def _check_names(structure: Structure, config: Config) -> None:
    """Layers that options name must be there and be pruned."""
    prunable = {layer.name for layer in structure.prunable}
    for name in config.protect:
        if name not in prunable:
            kept = {layer.name: layer.kept_because for layer in structure}
            why = f" It is kept: {kept[name]}." if name in kept else ""
            hint = "" if why else closest(name, prunable, most=1)
            raise InputError(f"'protect' names {name!r}, which is no prunable layer.{why}{hint}")


def _outputs_of(model: nn.Module, batch: Any, forward: Forward | None) -> str:
    """What the network makes of some images: weights alone do not tell how it is wired."""
    with evaluating(model):
        logits = logits_of(run_network(model, move(batch, model), forward)).float().cpu()
    scale = float(logits.abs().max()) or 1.0
    return hashlib.sha256(_bytes((logits / scale * 1000).round().to(torch.int16))).hexdigest()


def fingerprint(model: nn.Module) -> str:
    """SHA-256 over names, types, shapes and values of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, Tensor):  # a module's own extra state
            digest.update(f"{name} {tensor!r};".encode())
            continue
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """What a result was made with."""
    names = ("snacs", "torch", "numpy", "scikit-learn", "numba")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def repeatable(images: Images | None) -> Images | None:
    """Images that can be read more than once: the batches of a one-shot iterator are kept."""
    return list(images) if isinstance(images, Iterator) else images


def shape_of(train: Any) -> list[Any]:
    """What can be said about training data without reading it all: first batch and length."""
    images = train(0) if callable(train) else train
    try:
        batches = len(images)
    except TypeError:  # an endless or iterable data set
        batches = None
    return [describe(next(iter(images), None)), batches]


def digest_of(images: Images | None) -> tuple[str, int]:
    """SHA-256 over all tensors of all batches, and how many images there are."""
    digest, count = hashlib.sha256(), 0
    for batch in () if images is None else images:
        count += size_of(batch)
        for tensor in tensors_of(batch):
            digest.update(_bytes(tensor))
    return digest.hexdigest(), count


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
