"""One piece of work: a network, its images and options, and the keys that name them."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from snacs.config import Config, Goal
from snacs.network.batches import Forward, size_of, tensors_of
from snacs.network.calibration import Calibration, gather
from snacs.network.layers import Ignore, find_structure
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

    @property
    def plan_key(self) -> str:
        """The key of the finished plan: everything counts."""
        return self.key(*self.config.as_dict(), goal=asdict(self.goal))

    def key(self, *options: str, **more: Any) -> str:
        """A key of the model, the images, the seed and the named options."""
        chosen = self.config.as_dict()
        return key_of(
            model=self.facts["model"],
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
