"""The layer view of the paper: Y is an input filter, Z all other inputs of the layer, hashed.

For a connection (i, j): X = output filter i, Y = input filter j, Z = all other input filters (of
the same group, in a grouped convolution).

**One width for a layer.** The relative scale of a layer's inputs and outputs is a convention (a
BatchNorm away from any other), so each side is measured in its own unit, the mean over its filters
of their standard deviation; in these units one width ε = ``config.width`` serves X, Y and Z. Within
a side loud filters thus spread over more bins than quiet ones.

**Z.** ``hash="projection"``: S = R · inputs with ``config.directions`` Gaussian directions, each
scaled so that its projection of all inputs has a standard deviation of one unit; leaving out filter
j is the rank-1 update S − R_j y_j, so all filters share one projection. ``hash="floor"``: every
coordinate is floored and the vector hashed onto {1..F} (``hashing.Buckets``); leaving out filter j
takes one term out of a sum.

**Groups.** X and Y are vectors of contiguous filters, hashed as ``hashing.VectorHash`` says; Z is
what is left without Y's group.

Memory: outputs, inputs and their codes (12 bytes per filter and sample, 13 per output), and per
thread a few numbers per sample plus what ``kernels_layer`` states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snacs.config import Config
from snacs.scores.grouping import Block, blocks_of
from snacs.scores.hashing import (
    PRIME,
    Buckets,
    VectorHash,
    bin_codes,
    direction_count,
    draw_directions,
    draw_shifts,
    mean_deviation,
)
from snacs.scores.kernels import bin_squares, number_keys, plain, sort_cells
from snacs.scores.kernels_columns import turn_chosen
from snacs.scores.kernels_layer import (
    PLANE_BINS,
    number_without,
    pack_children,
    sum_children,
    sum_parents,
    sum_rows,
)
from snacs.scores.kernels_wide import sum_children_wide, sum_parents_wide
from snacs.scores.occupancy import MEASURES, occupancy_of
from snacs.scores.parallel import Threads
from snacs.scores.scaling import Cellwise, ScalingTerms, layer_terms
from snacs.scores.sides import Side, in_bins, project_inputs, side_of
from snacs.scores.vectors import AVAILABLE, CHILDREN
from snacs.values import Evidence

Numbers = tuple[NDArray[np.int32], int]
Planes = tuple[NDArray[np.uint8], NDArray[np.integer[Any]], NDArray[np.int64]]
Rest = Callable[[slice], Numbers]

TOGETHER = 16
"""Parents per call of a kernel: enough to hide the call, few enough to share out among threads."""


def score_layer(
    evidence: Evidence, config: Config, rng: np.random.Generator, threads: int
) -> tuple[NDArray[np.float64], dict[str, float]]:
    """ACMI of every connection in the layer view, (c_out, c_in), and the occupancy of its cells.

    A layer whose inputs or outputs are all constant scores 0 everywhere.
    """
    with Threads(threads) as pool:
        return _score_layer(evidence, config, rng, pool)


def _score_layer(
    evidence: Evidence, config: Config, rng: np.random.Generator, threads: Threads
) -> tuple[NDArray[np.float64], dict[str, float]]:
    layer = evidence.layer
    scores = np.zeros((layer.c_out, layer.c_in))
    both = (evidence.inputs, evidence.outputs)
    unit_in, unit_out = threads.map(mean_deviation, both)
    shifts = draw_shifts(rng, config.shifts)
    if unit_in == 0 or unit_out == 0:
        return scores, {}
    blocks = blocks_of(layer, config.groups)
    terms = layer_terms(config.scaling, evidence.weight, blocks)
    inputs, outputs = (
        in_bins(values, unit * config.width, threads)
        for values, unit in zip(both, (unit_in, unit_out), strict=True)
    )
    found = np.zeros(MEASURES)
    for block in blocks:
        view = _View.draw(evidence, config, rng, block, terms, inputs, outputs)
        for shift in shifts:
            values = view.score(shift, found, threads)
            scores[block.filters] += block.spread(values)
    scores *= terms.factor / config.shifts
    pairs = config.shifts * sum(len(block.columns) for block in blocks)
    occupancy = occupancy_of(found, pairs=pairs, samples=len(evidence.inputs))
    return scores, occupancy


@dataclass(frozen=True, eq=False)
class _View:
    """One convolution group: its filters in bin widths, and the hashes drawn for it."""

    config: Config
    block: Block
    terms: ScalingTerms
    raw_inputs: NDArray[np.float32]
    raw_outputs: NDArray[np.float32]
    inputs: NDArray[np.float32]
    outputs: NDArray[np.float32]
    group_hash: VectorHash
    directions: NDArray[np.float64]
    buckets: Buckets

    @staticmethod
    def draw(
        evidence: Evidence,
        config: Config,
        rng: np.random.Generator,
        block: Block,
        terms: ScalingTerms,
        inputs: NDArray[np.float32],
        outputs: NDArray[np.float32],
    ) -> _View:
        samples = inputs.shape[1]
        varies = terms.cellwise is not Cellwise.ONE
        channels = block.channels(slice(0, block.columns[-1].stop))
        count = direction_count(samples, config.directions)
        widest = max(part.stop - part.start for part in (*block.rows, *block.columns))
        return _View(
            config=config,
            block=block,
            terms=terms,
            # φ is taken at bin means in the network's units; where it is 1 nobody reads these.
            raw_inputs=plain(evidence.inputs[:, channels].T) if varies else inputs[:0],
            raw_outputs=plain(evidence.outputs[:, block.filters].T) if varies else outputs[:0],
            inputs=inputs[channels],
            outputs=outputs[block.filters],
            group_hash=VectorHash.draw(
                rng, kind=config.hash, dims=widest, samples=samples, directions=count
            ),
            directions=draw_directions(rng, count, channels.stop - channels.start),
            buckets=Buckets.draw(rng, channels.stop - channels.start, samples),
        )

    def score(
        self, shift: NDArray[np.float32], found: NDArray[np.float64], threads: Threads
    ) -> NDArray[np.float64]:
        """(row groups, column groups) scores at one shift; adds their occupancy."""
        first = self.block.rows[0].start
        rows = [slice(part.start - first, part.stop - first) for part in self.block.rows]
        varies = self.terms.cellwise is not Cellwise.ONE
        raw_x, raw_y = (self.raw_outputs, self.raw_inputs) if varies else (None, None)
        x = side_of(self.outputs, raw_x, rows, self.group_hash, shift[0], threads)
        y = side_of(self.inputs, raw_y, self.block.columns, self.group_hash, shift[1], threads)
        planes = None
        fits = self.terms.cellwise is Cellwise.ONE and int(x.bins.max()) <= PLANE_BINS
        if fits and self._projects:
            return self._score_together(shift[2], x, y, found, threads)
        if fits:
            planes = self._pack(x, threads)
        rest = self._rest(shift[2])
        results = threads.map(
            lambda parent: self._score_parent(parent, x, y, planes, rest),
            range(len(self.block.columns)),
        )
        for _, counts in results:
            found += counts
        return np.stack([values for values, _ in results], axis=1)

    @property
    def _projects(self) -> bool:
        """True where Z is what is left of a projection, False where it is constant or floored."""
        wide = self.config.conditional and len(self.block.columns) > 1
        return wide and self.config.hash == "projection"

    @property
    def _wide(self) -> bool:
        """True where the processor has the vectors of ``kernels_wide``, unless for edges."""
        return AVAILABLE and self.config.support != "edges"

    def _pack(self, x: Side, threads: Threads) -> Planes:
        """Bytes, what is known of the largest of them, and where each child is."""
        if self._wide:
            codes, most, place = pack_children(x.numbers, x.bins, threads, CHILDREN)
            return codes, most, place
        codes, _, place = pack_children(x.numbers, x.bins, threads)
        return codes, codes.max(axis=2), place

    def _score_together(
        self,
        shift: np.float32,
        x: Side,
        y: Side,
        found: NDArray[np.float64],
        threads: Threads,
    ) -> NDArray[np.float64]:
        """:meth:`score` for φ = 1 and projections: a kernel takes some parents from end to end."""
        columns = self.block.columns
        starts = np.array([part.start for part in columns] + [columns[-1].stop])
        codes, highest, place = self._pack(x, threads)
        width = self.config.width
        projection, directions = project_inputs(self.inputs, self.directions, width, threads)
        edges = self.config.support == "edges"
        parents = (projection, self.inputs, directions, starts, shift, y.numbers, y.bins)

        total = np.empty((len(columns), codes.shape[0], codes.shape[2]))
        counts = np.empty((len(columns), 4))

        def some(first: int) -> None:
            last = min(first + TOGETHER, len(columns))
            if self._wide:
                sum_parents_wide(*parents, codes, highest, first, last, total, counts)
            else:
                sum_parents(*parents, codes, highest, edges, first, last, total, counts)

        threads.map(some, range(0, len(columns), TOGETHER))
        found[:3] += counts[:, :3].sum(axis=0)
        found[3] += x.mean_bins * len(columns)
        found[4] += y.bins.sum()
        # One bin scores exactly 0, whatever single precision makes of N · (1/N).
        factors = (x.bins > 1) / (2.0 * self.inputs.shape[1])
        flat, scores = total.reshape(len(columns), -1), np.empty((len(place), len(columns)))
        threads.share(
            lambda first, last: turn_chosen(flat, place, factors, first, last, scores), len(place)
        )
        return scores

    def _rest(self, shift: np.float32) -> Rest:
        """A function of some columns: the cell numbers of all the other inputs."""
        samples = self.inputs.shape[1]
        if not self.config.conditional or len(self.block.columns) == 1:
            return lambda _: (np.zeros(samples, np.int32), 1)
        if self.config.hash == "floor":
            codes = bin_codes(self.inputs, np.float32(1), shift)
            whole = self.buckets.form(codes)

            def without_form(columns: slice) -> Numbers:
                own = self.buckets.form(codes[columns], columns)
                keys = self.buckets.finish((whole - own) % PRIME)
                numbers, count = number_keys(keys, self.buckets.count)
                return numbers, int(count)

            return without_form
        projection, directions = project_inputs(self.inputs, self.directions, self.config.width)

        def without_part(columns: slice) -> Numbers:
            part = self.inputs[columns]
            numbers, count = number_without(projection, part, directions[columns], shift)
            return numbers, int(count)

        return without_part

    def _score_parent(
        self,
        parent: int,
        x: Side,
        y: Side,
        planes: Planes | None,
        rest: Rest,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Scores of all row groups against one column group at one shift, and its occupancy."""
        columns = self.block.columns[parent]
        z, cells_z = rest(columns)
        cells = sort_cells(z, cells_z, y.numbers[parent], int(y.bins[parent]))
        found = np.array(
            [cells_z, cells[5], len(cells[0]), x.mean_bins, y.bins[parent]], dtype=np.float64
        )
        edges = self.config.support == "edges"
        if planes is not None:
            codes, highest, place = planes
            if self._wide:
                sums = sum_children_wide(codes, highest, cells).reshape(-1)[place]
            else:
                sums = sum_children(codes, highest, cells, edges).reshape(-1)[place]
            sums[x.bins == 1] = 0  # exactly, whatever single precision makes of N · (1/N)
        else:
            cellwise = int(self.terms.cellwise)
            squares = (x.squares, y.squares[parent], self._rest_squares(columns, z, cells_z))
            starts = [part.start for part in self.block.rows]
            decay = np.ascontiguousarray(self.terms.decay[starts, columns.start])
            sums = sum_rows(x.numbers, x.bins, cells, squares, cellwise, decay, edges)
        return sums / (2 * len(z)), found

    def _rest_squares(
        self, columns: slice, z: NDArray[np.int32], cells: int
    ) -> NDArray[np.float64]:
        """‖z̄_k‖², Z being the vector of all the other inputs; 0 where it is not needed."""
        if not self.config.conditional or self.terms.cellwise is Cellwise.ONE:
            return np.zeros(cells)
        before, after = self.raw_inputs[: columns.start], self.raw_inputs[columns.stop :]
        return np.asarray(bin_squares(z, cells, before) + bin_squares(z, cells, after))
