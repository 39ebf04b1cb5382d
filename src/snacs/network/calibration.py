"""A small, class-balanced set of images, kept in memory and the same for the same seed."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snacs.errors import InputError
from snacs.network.batches import (
    Forward,
    describe,
    evaluating,
    labels_of,
    logits_of,
    map_tensors,
    move,
    run,
    size_of,
    tensors_of,
)
from snacs.values import IntArray

SCAN = 20
"""At most this many images are looked at for each one that is kept."""
_UNEVEN = 1.5  # the largest class may have this many times the mean before a note says so


@dataclass(frozen=True, eq=False)
class Calibration:
    """Images to gather evidence from.

    Attributes
    ----------
    batches : tuple
        Of fixed size but for the last one, on the CPU, in the form in which they came.
    labels : (n,)
        Class index per image, in the order of the batches.
    classes : int
        Different classes among the labels.
    labelled : bool
        False if the labels are the network's own predictions.
    notes : tuple of str
        What a report should say about this set.
    """

    batches: tuple[Any, ...]
    labels: IntArray
    classes: int
    labelled: bool = True
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def sha256(self) -> str:
        """Of all tensors and labels: the same images give the same key."""
        digest = hashlib.sha256()
        for tensor in (t for batch in self.batches for t in tensors_of(batch)):
            digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
        digest.update(np.ascontiguousarray(self.labels, dtype=np.int64).tobytes())
        return digest.hexdigest()


def gather(
    images: Iterable[Any],
    model: nn.Module,
    *,
    count: int,
    batch: int,
    seed: int,
    forward: Forward | None = None,
    classes_needed: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Calibration:
    """Keep ``count`` images, as equally over the classes as they come.

    Any iterable of batches will do: one-shot, endless (at most ``20 · count`` images are looked
    at), sorted by class, or without labels; then the network's own predictions stand in for them.
    Repair needs no classes (``classes_needed=False``); evidence needs at least two.
    """
    kept = _Reservoir(count, seed)
    labelled, singly = _fill(kept, images, limit=SCAN * count, progress=progress)
    samples = kept.samples()
    if not samples:
        raise InputError("'images' gave no batches. Pass an iterable of (x, y) batches.")
    batches = tuple(
        _stack([sample.value for sample in samples[i : i + batch]], singly)
        for i in range(0, len(samples), batch)
    )
    width, predicted = _ask(model, batches, forward, all_of_them=not labelled)
    labels = np.array([s.label for s in samples], np.int64) if labelled else predicted
    if classes_needed:
        _check_labels(labels, width, labelled=labelled)
    return Calibration(
        batches=batches,
        labels=labels,
        classes=len(np.unique(labels)),
        labelled=labelled,
        notes=tuple(_notes(labels, count=count, scanned=kept.scanned, labelled=labelled)),
    )


@dataclass(order=True)
class _Sample:
    priority: float
    order: int
    label: int = field(compare=False)
    value: Any = field(compare=False)


class _Reservoir:
    """At most ``count`` samples; the largest class gives way, its lowest random priority first."""

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self.scanned = 0
        self._stream = np.random.default_rng([seed, 0xCA11B])
        self._classes: dict[int, list[_Sample]] = {}
        self._size = 0
        # Classes by how many samples they have, so that the largest is found at once.
        self._by_size: list[dict[int, None]] = [{}]

    def offer(self, label: int, value: Callable[[], Any]) -> None:
        """Consider one image; ``value`` copies it out of its batch if it is taken."""
        sample = _Sample(float(self._stream.random()), self.scanned, label, None)
        self.scanned += 1
        mine = self._classes.setdefault(label, [])
        if self._size >= self.count:
            top = len(self._by_size) - 1
            victim = label if len(mine) + 1 >= top and mine else next(iter(self._by_size[top]))
            if victim == label and sample < mine[0]:
                return
            self._resize(victim, -1)
            heapq.heappop(self._classes[victim])
        self._resize(label, +1)
        sample.value = value()
        heapq.heappush(mine, sample)

    def _resize(self, label: int, by: int) -> None:
        size = len(self._classes[label])
        self._by_size[size].pop(label, None)
        if size + by == len(self._by_size):
            self._by_size.append({})
        self._by_size[size + by][label] = None
        while len(self._by_size) > 1 and not self._by_size[-1]:
            self._by_size.pop()
        self._size += by

    def samples(self) -> list[_Sample]:
        """All that stayed, in random order, so that no batch holds a single class."""
        return sorted(sample for samples in self._classes.values() for sample in samples)


def _fill(
    kept: _Reservoir,
    images: Iterable[Any],
    *,
    limit: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[bool, list[bool]]:
    """Whether there are labels, and which tensors of a batch hold one entry per image."""
    labelled: bool | None = None
    singly: list[bool] = []
    for given in _iterate(images):
        batch = _as_tensors(given)
        labels = labels_of(batch)
        size = size_of(batch)
        if labelled is None:
            labelled = labels is not None
            singly = [_per_image(tensor, size) for tensor in tensors_of(batch)]
        if labelled != (labels is not None):
            raise InputError("Some batches carry labels and some do not; give all or none.")
        _check_images(batch, kept.scanned)
        for i in range(min(size, limit - kept.scanned)):
            label = int(labels[i]) if labels is not None else 0
            kept.offer(label, partial(_single, batch, i, size))
        if progress is not None:
            progress(min(kept.scanned, limit), limit)
        if kept.scanned >= limit:
            break
    return bool(labelled), singly


def _iterate(images: Iterable[Any]) -> Iterator[Any]:
    if isinstance(images, Tensor | np.ndarray | dict | str) or not isinstance(images, Iterable):
        raise InputError(
            "'images' must be an iterable of batches, such as a DataLoader or a list of (x, y). "
            f"Got {describe(images)}; for a single batch pass [batch]."
        )
    return iter(images)


def _check_images(batch: Any, before: int) -> None:
    for tensor in tensors_of(batch):
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            size = size_of(batch)
            raise InputError(
                f"NaN or infinite values in the images {before} to {before + size - 1} "
                f"({describe(batch)}). Check how they are loaded and normalised."
            )


def _as_tensors(batch: Any) -> Any:
    """Images and labels may come as numpy arrays, labels also as a list of numbers."""
    if isinstance(batch, tuple | list):
        parts = [_as_tensor(value) for value in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if isinstance(batch, Mapping):
        return {key: _as_tensor(value) for key, value in batch.items()}
    return _as_tensor(batch)


def _as_tensor(value: Any) -> Any:
    numbers = isinstance(value, list) and all(isinstance(v, int | float) for v in value)
    return torch.as_tensor(value) if numbers or isinstance(value, np.ndarray) else value


def _per_image(tensor: Tensor, size: int) -> bool:
    return tensor.ndim > 0 and tensor.shape[0] == size


def _single(batch: Any, i: int, size: int) -> Any:
    """One image's part of a batch, copied so that the batch itself can go."""

    def take(tensor: Tensor) -> Tensor:
        mine = tensor[i] if _per_image(tensor, size) else tensor
        return mine.detach().to("cpu", copy=True)

    return map_tensors(batch, take)


def _stack(samples: list[Any], singly: list[bool]) -> Any:
    """Single images put together again in the form of the first."""
    columns = [list(tensors_of(sample)) for sample in samples]
    if len({tuple((t.shape, t.dtype) for t in column) for column in columns}) != 1:
        shapes = sorted({describe(sample) for sample in samples})
        raise InputError(
            "All images must have one shape and type to be put into batches. Got "
            f"{' and '.join(shapes[:4])}. Resize or crop them."
        )
    stacked = iter(
        [
            torch.stack(parts) if each else parts[0]
            for parts, each in zip(zip(*columns, strict=True), singly, strict=True)
        ]
    )
    return map_tensors(samples[0], lambda _: next(stacked))


def _ask(
    model: nn.Module, batches: tuple[Any, ...], forward: Forward | None, *, all_of_them: bool
) -> tuple[int, IntArray]:
    """How many classes the network knows, and what it says of the images."""
    found = []
    with evaluating(model):
        for batch in batches if all_of_them else batches[:1]:
            found.append(logits_of(run(model, move(batch, model), forward)).float().cpu())
    logits = torch.cat(found)
    return int(logits.shape[1]), logits.argmax(dim=1).numpy().astype(np.int64)


def _check_labels(labels: IntArray, width: int, *, labelled: bool) -> None:
    classes = len(np.unique(labels))
    if int(labels.max()) >= width:
        raise InputError(
            f"Label {int(labels.max())} is out of range: the network has {width} outputs, so "
            f"labels must lie in 0 to {width - 1}."
        )
    if classes < 2:
        whose = "All images have" if labelled else "Without labels: the network predicts"
        raise InputError(
            f"{whose} one class only ({int(labels[0])}). Evidence of what tells classes apart "
            "needs at least two; if the images are sorted by class, shuffle them."
        )
    if labelled and len(labels) < 2 * classes:
        raise InputError(
            f"{len(labels)} images are too few for {classes} classes: each class needs at least "
            f"two. Ask for {2 * classes} or more (count=, --images) and provide them."
        )


def _notes(labels: IntArray, *, count: int, scanned: int, labelled: bool) -> Iterator[str]:
    sizes = Counter(labels.tolist())
    if not labelled:
        yield "The images carry no labels; the network's own predictions are used instead."
    if len(labels) < count:
        yield f"Only {len(labels)} images were given; {count} were asked for."
    most, least = max(sizes.values()), min(sizes.values())
    if most > _UNEVEN * len(labels) / len(sizes) or least * _UNEVEN < len(labels) / len(sizes):
        yield (
            f"The classes are imbalanced: {least} to {most} images per class among the "
            f"{len(labels)} that were kept of {scanned}."
        )
