"""The rows of a program: which number of an operation stands where.

A program is a table of int64, one row per operation, so that compiled code runs all of them in one
call. Offsets count floats in the arena; ``*_AT`` are places in the tables of numbers.
"""

from __future__ import annotations

WIDTH = 32
"""Numbers per operation."""

CONV, ROWS, DENSE, COPY, POOL, MEAN, PACK, UNPACK = range(8)
"""Kinds: convolution by taps, by rows (1×1), matrix times vector, copy or affine, pooling, mean
over space, from and to (image, channel, y, x)."""

KIND, ITEMS, GRAIN, X, X_PLANE, OUT, OUT_PLANE, OTHER, OTHER_PLANE, LIMITS_AT, CHANNELS = range(11)
"""All kinds: items of work and how many are taken at once; the input, the output, what is added
(−1: nothing) and their floats per channel; where (low, high) of the clipping stands."""

VARIANT, VECTORS, TILES, X_BASES, OUT_BASES, MASKS, BLOCKS, BLOCKS_AT = range(11, 19)
GROUPS_AT, BIAS_AT, ROWS_AT, WEIGHTS_AT, EDGES_AT = range(19, 24)
"""CONV and ROWS: tiles of VECTORS vectors; blocks of filters, in BLOCKS_AT as (first filter, how
many, first group, how many groups); groups as (input offset, taps, first kernel, last kernel).
EDGES_AT, if there are no zeros between rows: by tile, lanes with a pixel to their left, to their
right."""

SHIFT, SOURCES, STRIDE, X_ORIGIN, OUT_ORIGIN, HEIGHT, COLUMNS, X_ROW, OUT_ROW, UNIT = range(11, 21)
SCALE_AT, SHIFT_AT = range(21, 23)
"""COPY: output channel c reads input channel c − SHIFT, if there is one of the SOURCES, else 0;
X_ROW is the way from what one output row reads to what the next does."""

KERNEL_H, KERNEL_W, STEP_H, STEP_W, PAD_H, PAD_W, IN_H, IN_W = range(21, 29)
AVERAGE = 29
"""POOL, beside COPY's geometry: AVERAGE is 0 for the maximum, 1 to count valid pixels only, 2 to
count padding too."""

IO = 21
"""PACK and UNPACK, beside COPY's geometry: the address of torch's tensor, (n, c, h, w)."""

MOST_THREADS = 256
"""More are not used."""

OPS, BEGIN, END, IMAGES, THREADS = range(5)
INTS, INTS_SIZE, ROWS_OF, ROWS_SIZE, WEIGHTS, WEIGHTS_SIZE = range(5, 11)
STATE, STATE_SIZE, ARENA_SIZE, SUMS_SIZE, ARENAS = range(11, 16)
SUMS = ARENAS + MOST_THREADS
JOB_SIZE = SUMS + MOST_THREADS
"""A job is a range of a program's operations with addresses and sizes of all that they use; each
thread has its partial sums, and an arena for itself if whole blocks are done apart."""

NEXT_BLOCK, BLOCKS_DONE, COUNTERS = 0, 8, 16
"""A job's counters, a cache line apart; from COUNTERS on, two lines per operation."""

BELL, ACTIVE, OWNER, DISMISSED, JOB, APART, FIRST, LAST = 0, 8, 16, 24, 32, 33, 34, 35
ASLEEP = 40
TEAM_SIZE = ASLEEP + 8 * MOST_THREADS
"""Who leads the threads and what they do: the bell, active helpers, leaders that want them, whether
the process ends; the job, whether blocks are done apart, and which; who sleeps."""
