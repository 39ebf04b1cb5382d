"""Batched crop and flip against the same done image by image."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from snacs.zoo.data.augment import crop_flip


def one_by_one(x: Tensor, seed: int, padding: int, flip: bool) -> Tensor:
    """The plain reference: pad, slice, flip each image with the same random numbers."""
    generator = torch.Generator().manual_seed(seed)
    n, _, height, width = x.shape
    top = torch.randint(0, 2 * padding + 1, (n, 1), generator=generator)
    left = torch.randint(0, 2 * padding + 1, (n, 1), generator=generator)
    flipped = torch.rand(n, 1, generator=generator) < 0.5
    out = []
    for i in range(n):
        padded = F.pad(x[i], (padding,) * 4)
        image = padded[:, top[i] : top[i] + height, left[i] : left[i] + width]
        out.append(image.flip(-1) if flip and flipped[i] else image)
    return torch.stack(out)


@settings(deadline=None, max_examples=30)
@given(
    shape=st.tuples(*(st.integers(1, n) for n in (6, 3, 7, 9))),
    padding=st.integers(0, 4),
    flip=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_equals_the_reference(shape: tuple[int, ...], padding: int, flip: bool, seed: int) -> None:
    x = torch.randint(0, 256, shape, dtype=torch.uint8)
    batched = crop_flip(x, torch.Generator().manual_seed(seed), padding=padding, flip=flip)
    assert batched.dtype == torch.uint8
    assert batched.is_contiguous()
    assert torch.equal(batched, one_by_one(x, seed, padding, flip))


def test_every_place_and_both_directions_occur() -> None:
    x = torch.zeros(4000, 1, 3, 3, dtype=torch.uint8)
    x[:, 0, 1, 1] = 1  # the centre moves by −1, 0 or 1 both ways
    x[:, 0, 1, 2] = 2  # its right neighbour tells a flip
    out = crop_flip(x, torch.Generator().manual_seed(0), padding=1)
    places = {tuple(p) for p in (out[:, 0] == 1).nonzero()[:, 1:].tolist()}
    assert places == {(i, j) for i in range(3) for j in range(3)}
    right = (out[:, 0, :, 1:] == 2) & (out[:, 0, :, :-1] == 1)
    left = (out[:, 0, :, :-1] == 2) & (out[:, 0, :, 1:] == 1)
    # Each is seen in a third of all images (half are flipped, two of three columns show both
    # pixels): 1333 expected, standard deviation 30; 150 is five of them.
    assert abs(int(right.sum()) - 1333) < 150
    assert abs(int(left.sum()) - 1333) < 150
