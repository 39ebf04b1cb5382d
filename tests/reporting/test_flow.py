"""The network thinned out for drawing: links to first readers, shortcuts round blocks."""

from __future__ import annotations

from snacs.reporting.flow import links_and_shortcuts
from snacs.values import NETWORK_INPUT, Layer, Segment, Structure
from structures import residual


def test_a_residual_network_is_a_chain_with_one_shortcut_per_block():
    structure = residual()
    names = [layer.name for layer in structure]
    links, shortcuts = links_and_shortcuts(structure)
    assert [(names[a], names[b]) for a, b in links] == [
        ("stem", "a1"), ("a1", "a2"), ("a2", "b1"), ("b1", "b2"), ("b2", "head"),
    ]  # fmt: skip
    assert [(names[a], names[b]) for a, b in shortcuts] == [("a1", "b1"), ("b1", "head")]


def test_parallel_branches_are_links_not_shortcuts():
    def layer(name, *sources):
        feeds = tuple(Segment(source, 0, 4 * i, 4) for i, source in enumerate(sources))
        return Layer(name, "Conv2d", 4, 4 * len(sources), 1, feeds=feeds)

    structure = Structure(
        (layer("in", NETWORK_INPUT), layer("left", "in"), layer("right", "in"),
         layer("out", "left", "right"))
    )  # fmt: skip
    links, shortcuts = links_and_shortcuts(structure)
    assert links == [(0, 1), (0, 2), (1, 3), (2, 3)]
    assert shortcuts == []
