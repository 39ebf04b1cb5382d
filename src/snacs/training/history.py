"""What training tells: plain frozen rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EpochRow:
    """One finished epoch; ``epoch`` counts from 1, accuracies are fractions."""

    epoch: int
    loss: float
    accuracy: float
    validation: float | None
    learning_rate: float
    seconds: float


@dataclass(frozen=True)
class ProgressRow:
    """Where a run is; ``batches`` and ``seconds_left`` are None where they cannot be known."""

    epoch: int
    epochs: int
    batch: int
    batches: int | None
    loss: float
    accuracy: float
    validation: float | None
    seconds_left: float | None


@dataclass(frozen=True)
class History:
    """All epochs, how many were read from the folder, and the one whose weights were kept."""

    rows: tuple[EpochRow, ...]
    resumed: int
    chosen: int
    notes: tuple[str, ...] = ()
