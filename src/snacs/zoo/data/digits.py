"""The 1,797 handwritten 8×8 digits that scikit-learn carries: no download, for demo and tests."""

from __future__ import annotations

import torch

from snacs.zoo.data.images import Images, InMemory, stratified_split
from snacs.zoo.entry import Normalisation

TEST_SHARE = 0.25
_SPLIT_SEED = 0


def digits(*, split: str, normalisation: Normalisation | None) -> Images:
    """Train (1,347), test (450) or all digits; the split is fixed and equal over classes.

    Parameters
    ----------
    split : "train", "test" or "all"; "calibration" is "train".
    """
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    # Grey levels 0…16 become 0…255.
    pixels = torch.from_numpy(x.reshape(-1, 1, 8, 8) * (255 / 16)).round().to(torch.uint8)
    images = Images(
        pixels=InMemory(pixels),
        y=torch.from_numpy(y).long(),
        classes={digit: str(digit) for digit in range(10)},
        normalisation=normalisation,
        origin=f"digits of scikit-learn, {split}",
    )
    if split == "all":
        return images
    train, test = stratified_split(images.y, held_out=TEST_SHARE, seed=_SPLIT_SEED)
    return images.subset(test if split == "test" else train)
