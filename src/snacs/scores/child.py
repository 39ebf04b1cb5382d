"""The child view: Y is what the kernel adds to the output, Z is the rest of the output.

For a connection (i, j): Y = Σ_k w[i,j,k] · window[j,k], X = the output i as the layer returned it
(bias included), Z = X − Y, the one-dimensional summary of all other inputs that matters to this
filter. Let s be the mean, over the layer's filters, of the standard deviation of the outputs: X and
Z are read at a bin width of ``config.width · s``, Y at ``config.contribution_width · s``, the same
for all connections of the layer.

X = Y + Z exactly, so this estimates no limit: as the widths shrink every kernel would score 1, and
Theorem 1 does not apply. It measures the spread of a kernel's contribution against the resolution
at which the output is read.

Groups: X is the vector of a group's outputs, Y the vector of what the input group adds to each of
them (summed over the input group), Z = X − Y. The three are hashed alike (``hashing``), so that
with projections X = Y + Z still holds in every direction; ``contribution_width`` applies to Y.
Single filters are scalars and only floored, whatever ``config.hash`` says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from snacs.config import Config
from snacs.scores.grouping import Block, blocks_of
from snacs.scores.hashing import (
    VectorHash,
    bin_codes,
    direction_count,
    draw_shifts,
    mean_deviation,
)
from snacs.scores.kernels import bin_squares, number_codes, plain, sort_cells, sum_pair
from snacs.scores.kernels_child import contribute, contribute_group, score_channel
from snacs.scores.occupancy import MEASURES, occupancy_of
from snacs.scores.parallel import map_threads
from snacs.scores.scaling import Cellwise, ScalingTerms, layer_terms
from snacs.values import Evidence

Result = tuple[NDArray[np.float64], dict[str, float]]


@dataclass(frozen=True, eq=False)
class _Task:
    """All that one thread needs to score some columns of one block."""

    evidence: Evidence
    config: Config
    outputs: NDArray[np.float32]
    inverses: NDArray[np.float32]
    shifts: NDArray[np.float32]
    terms: ScalingTerms
    hashing: VectorHash

    def windows(self, block: Block, columns: slice) -> NDArray[np.float32]:
        """(channels, kernel, N): samples innermost, for the kernels."""
        chosen = self.evidence.windows[:, block.channels(columns)]
        return plain(chosen.transpose(1, 2, 0))

    def weight(self, rows: slice, columns: slice) -> NDArray[np.float32]:
        return plain(self.evidence.weight[rows, columns])


def score_child(
    evidence: Evidence, config: Config, rng: np.random.Generator, threads: int
) -> Result:
    """ACMI of every connection in the child view, (c_out, c_in), and the occupancy of its cells.

    A layer whose outputs are all constant scores 0 everywhere.
    """
    layer, unit = evidence.layer, mean_deviation(evidence.outputs)
    scores = np.zeros((layer.c_out, layer.c_in))
    if unit == 0:
        return scores, {}
    blocks = blocks_of(layer, config.groups)
    inverses = 1 / (unit * np.array([config.width, config.contribution_width]))
    task = _Task(
        evidence=evidence,
        config=config,
        outputs=plain(evidence.outputs.T),
        inverses=inverses.astype(np.float32),
        shifts=draw_shifts(rng, config.shifts),
        terms=layer_terms(config.scaling, evidence.weight, blocks),
        hashing=_draw_hash(evidence, config, rng, blocks),
    )
    single = all(block.single for block in blocks)
    places = [(block, columns) for block in blocks for columns in block.columns]
    results = map_threads(
        lambda place: (_score_column if single else _score_columns)(task, *place),
        places,
        threads=threads,
    )
    columns_done = iter(results)
    for block in blocks:
        own = [next(columns_done)[0] for _ in block.columns]
        scores[block.filters] = block.spread(np.stack(own, axis=1))
    found = np.sum([counts for _, counts in results], axis=0)
    pairs = config.shifts * sum(len(block.rows) * len(block.columns) for block in blocks)
    occupancy = occupancy_of(found, pairs=pairs, samples=len(evidence.outputs))
    return task.terms.factor * scores, occupancy


def _draw_hash(
    evidence: Evidence, config: Config, rng: np.random.Generator, blocks: tuple[Block, ...]
) -> VectorHash:
    samples = len(evidence.outputs)
    return VectorHash.draw(
        rng,
        kind=config.hash,
        dims=max(rows.stop - rows.start for block in blocks for rows in block.rows),
        samples=samples,
        directions=direction_count(samples, config.directions),
    )


def _score_column(
    task: _Task, block: Block, columns: slice
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All single filters of a block that read one channel: scalars, counted in a dense table."""
    rows = block.filters
    found = np.zeros(MEASURES)
    window, weight = task.windows(block, columns)[0], task.weight(rows, columns)[:, 0]
    decay = np.ascontiguousarray(task.terms.decay[rows, columns.start])
    sums, left_out = score_channel(
        window,
        weight,
        task.outputs[rows],
        task.inverses,
        task.shifts,
        task.config.conditional,
        task.config.support == "edges",
        int(task.terms.cellwise),
        decay,
        found,
    )
    for index, shift in np.argwhere(left_out):
        x, y = task.outputs[rows][index], np.empty(len(task.outputs[0]), np.float32)
        contribute(window, weight[index], y)
        values = (x[None], y[None], (x - y if task.config.conditional else np.zeros_like(x))[None])
        numbers = tuple(
            number_codes(bin_codes(value, inverse, b))
            for value, inverse, b in zip(
                values, task.inverses[[0, 1, 0]], task.shifts[shift], strict=True
            )
        )
        sums[index] += _sum_numbers(task, numbers, values, float(decay[index]), found)
    return sums / (2 * len(task.outputs[0]) * len(task.shifts)), found


def _score_columns(
    task: _Task, block: Block, columns: slice
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All groups of filters of a block against one group of channels: vectors, hashed."""
    windows = task.windows(block, columns)
    found = np.zeros(MEASURES)
    sums = np.zeros(len(block.rows))
    for index, rows in enumerate(block.rows):
        x = task.outputs[rows]
        y = contribute_group(windows, task.weight(rows, columns))
        values = (x, y, x - y if task.config.conditional else np.zeros_like(x))
        decay = float(task.terms.decay[rows.start, columns.start])
        projected = [task.hashing.project(value) for value in values]
        for shift in task.shifts:
            numbers = tuple(
                task.hashing.number(value, inverse, b)
                for value, inverse, b in zip(
                    projected, task.inverses[[0, 1, 0]], shift, strict=True
                )
            )
            sums[index] += _sum_numbers(task, numbers, values, decay, found)
    return sums / (2 * len(task.outputs[0]) * len(task.shifts)), found


def _sum_numbers(
    task: _Task,
    numbers: tuple[tuple[NDArray[np.int32], int], ...],
    values: tuple[NDArray[np.float32], ...],
    decay: float,
    found: NDArray[np.float64],
) -> float:
    """Σ φ (r − α)² / (r + α) of one pair at one shift, by sorting; adds its occupancy.

    ``numbers`` are the cell numbers of X, Y, Z and how many there are, ``values`` (dims, N).
    """
    (x, bins_x), (y, bins_y), (z, cells_z) = numbers
    cells = sort_cells(z, cells_z, y, bins_y)
    found += (cells_z, cells[5], len(cells[0]), bins_x, bins_y)
    squares = (np.zeros(1), np.zeros(1), np.zeros(1))
    cellwise = task.terms.cellwise
    if cellwise is not Cellwise.ONE:
        squares = tuple(
            bin_squares(codes, count, value)
            for (codes, count), value in zip(numbers, values, strict=True)
        )
    edges = task.config.support == "edges"
    return float(sum_pair(x, bins_x, cells, squares, int(cellwise), decay, edges))
