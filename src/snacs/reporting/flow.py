"""Who feeds whom, thinned out for drawing: links, and shortcuts that pass layers by."""

from __future__ import annotations

from snacs.values import Structure

Pairs = list[tuple[int, int]]


def links_and_shortcuts(structure: Structure) -> tuple[Pairs, Pairs]:
    """Pairs of layer indices: outputs read by the next layers, and shortcuts round a block.

    In a residual network every block reads the sum of all blocks before it. Drawn as it is, that
    is a tangle of n² lines. A source is therefore linked to the layers that read it *first*; where
    a later reader lies downstream of an earlier one, the signal has passed by the layers between
    them, and that is drawn as one shortcut from the earlier reader to the later.
    """
    index = {layer.name: place for place, layer in enumerate(structure)}
    readers: dict[int, list[int]] = {}
    for place, layer in enumerate(structure):
        for name in dict.fromkeys(segment.source for segment in layer.feeds):
            if name in index:
                readers.setdefault(index[name], []).append(place)
    below = [0] * len(index)  # bit b of below[a]: what a returns reaches b
    for place in sorted(readers, reverse=True):
        for reader in readers[place]:
            below[place] |= 1 << reader | below[reader]
    links: set[tuple[int, int]] = set()
    shortcuts: set[tuple[int, int]] = set()
    for source, places in readers.items():
        for count, reader in enumerate(places):
            earlier = [place for place in places[:count] if below[place] >> reader & 1]
            if earlier:
                shortcuts.add((earlier[-1], reader))
            else:
                links.add((source, reader))
    return sorted(links), sorted(shortcuts)
