"""An epoch in parts is the epoch."""

from __future__ import annotations

import pytest
import torch

from snacs.errors import InputError
from snacs.zoo.data import open_data
from snacs.zoo.data.parts import Parts


def test_the_parts_of_a_pass_share_no_image_and_repeat():
    train = open_data("digits", split="train")
    batches = train.batches(50, shuffle=3)
    parts = Parts(batches, 4)
    turns = []
    for turn in range(2):
        seen = [parts.at_epoch(4 * turn + part).images.index for part in range(4)]
        assert sorted(torch.cat(seen).tolist()) == sorted(
            (torch.arange(len(train.pixels)) if train.index is None else train.index).tolist()
        )
        assert all(len(part) % 50 == 0 for part in seen[:-1])
        turns.append(seen)
    assert not torch.equal(turns[0][0], turns[1][0])
    first, again = (next(iter(Parts(batches, 4).at_epoch(5)))[0] for _ in range(2))
    assert torch.equal(first, again)


def test_one_part_is_the_whole_epoch():
    batches = open_data("digits", split="train").batches(50, shuffle=3)
    for ours, theirs in zip(Parts(batches, 1).at_epoch(2), batches.at_epoch(2), strict=True):
        assert torch.equal(ours[0], theirs[0])


def test_a_part_holds_at_least_a_batch():
    batches = open_data("digits", split="train").batches(500, shuffle=3)
    assert [len(list(Parts(batches, 3).at_epoch(part))) for part in range(3)] == [1, 1, 1]
    with pytest.raises(InputError, match="between 1 and 3"):
        Parts(batches, 4)
