"""Structures for tests: a toy residual network, and random feed-forward ones."""

import numpy as np

from snacs.values import MIXED, NETWORK_INPUT, Layer, Norm, Segment, Structure


def residual():
    """stem (kept) → [a1 → a2] + stem → [b1 → b2], shortcut padded by 2 → head (kept).

    stem and a2 have 4 filters, b2 has 8; the shortcut puts the 4 channels of the first sum at
    channels 2 … 5 of the second. Inner layers a1 (6 filters) and b1 (5 filters) are coupled to
    nobody.
    """
    first_sum = (Segment("a2", 0, 0, 4), Segment("stem", 0, 0, 4))
    shortcut = (Segment("a2", 0, 2, 4), Segment("stem", 0, 2, 4))
    second_sum = (Segment("b2", 0, 0, 8), *shortcut)
    return Structure(
        layers=(
            Layer(
                "stem", "Conv2d", 4, 3, 9, feeds=(Segment(NETWORK_INPUT, 0, 0, 3),),
                consumers=("a1", "b1", "head"), kept_because="first layer",
            ),
            Layer("a1", "Conv2d", 6, 4, 9, feeds=(Segment("stem", 0, 0, 4),), consumers=("a2",)),
            Layer("a2", "Conv2d", 4, 6, 9, feeds=(Segment("a1", 0, 0, 6),)),
            Layer("b1", "Conv2d", 5, 4, 9, feeds=first_sum, consumers=("b2",)),
            Layer("b2", "Conv2d", 8, 5, 9, feeds=(Segment("b1", 0, 0, 5),)),
            Layer("head", "Linear", 10, 8, 1, feeds=second_sum, kept_because="classifier"),
        ),
        norms=(Norm("bn", "BatchNorm2d", 6, (Segment("a1", 0, 0, 6),)),),
        outputs=(Segment("head", 0, 0, 10),),
    )  # fmt: skip


def _concat(*parts):
    """Segments of tensors laid side by side; a tensor is (segments, channels)."""
    segments, start = [], 0
    for feeds, channels in parts:
        segments += [Segment(s.source, s.first, s.start + start, s.length) for s in feeds]
        start += channels
    return tuple(segments), start


def _slice(tensor, low, high):
    feeds, _ = tensor
    cut = []
    for s in feeds:
        begin, end = max(s.start, low), min(s.start + s.length, high)
        if begin < end:
            cut.append(Segment(s.source, s.first + begin - s.start, begin - low, end - begin))
    return tuple(cut), high - low


def random_structure(rng, *, layers=6, mixed=True):
    """Layers that read slices, concats, sums, padded shortcuts and groups of earlier tensors."""
    tensors = [((Segment(NETWORK_INPUT, 0, 0, 3),), 3)]
    made = []
    for index in range(layers):
        tensor = tensors[-1] if rng.random() < 0.6 else tensors[rng.integers(len(tensors))]
        kind = rng.integers(5)
        other = tensors[rng.integers(len(tensors))]
        if kind == 0:
            tensor = _concat(tensor, other)
        elif kind == 1 and tensor[1] > 1:
            low = int(rng.integers(0, tensor[1] - 1))
            tensor = _slice(tensor, low, int(rng.integers(low + 1, tensor[1] + 1)))
        elif kind == 2 and mixed and rng.random() < 0.3:
            tensor = ((Segment(MIXED, 0, 0, 4),), 4)
        feeds, channels = tensor
        groups = 2 if channels % 2 == 0 and rng.random() < 0.3 else 1
        c_out = groups * int(rng.integers(1, 4))
        name = f"l{index}"
        kept = "by hand" if rng.random() < 0.15 else None
        made.append(
            Layer(
                name, "Conv2d", c_out, channels // groups, int(rng.integers(1, 4)), groups=groups,
                positions=int(rng.integers(1, 4)), feeds=feeds, kept_because=kept,
            )
        )  # fmt: skip
        output = ((Segment(name, 0, 0, c_out),), c_out)
        if rng.random() < 0.3:  # a residual sum, padded if the shortcut is narrower
            shortcut = tensors[rng.integers(len(tensors))]
            room = c_out - shortcut[1]
            if room >= 0:
                shift = int(rng.integers(0, room + 1))
                moved = _concat(((), shift), shortcut)[0]
                output = ((*output[0], *moved), c_out)
        tensors.append(output)
    return Structure(layers=tuple(made), outputs=tensors[-1][0])


def path_exists(structure, keep):
    """Plain search from the network's input to its output through kept connections."""
    channels = {}  # (layer, channel) -> set of sources
    for layer in structure:
        for s in layer.feeds:
            for step in range(s.length):
                channels.setdefault((layer.name, s.start + step), set()).add(
                    (s.source, s.first + step)
                )
    outputs = {(s.source, s.first + k) for s in structure.outputs for k in range(s.length)}
    reached = set()
    while True:
        new = set()
        for layer in structure:
            mask = keep.get(layer.name, np.ones((layer.c_out, layer.c_in), dtype=bool))
            table = layer.channel_of()
            for i, j in np.argwhere(mask):
                sources = channels.get((layer.name, int(table[i, j])), set())
                if any(s in reached or s[0] in (NETWORK_INPUT, MIXED) for s in sources):
                    new.add((layer.name, int(i)))
        if new == reached:
            break
        reached = new
    return any(node in reached or node[0] in (NETWORK_INPUT, MIXED) for node in outputs)
