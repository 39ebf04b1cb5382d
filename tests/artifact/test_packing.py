"""Packed tensors: sizes by hand, and the same bits again whatever they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from snacs.artifact.packing import mask_of, pack, unpack
from snacs.errors import InputError


def test_sizes_by_hand() -> None:
    weight = torch.zeros(4, 16, 3, 3)
    keep = np.zeros((4, 16), dtype=bool)
    keep[:, ::2] = True  # 32 of 64 connections: 8 bytes of bits against 4 + 32 of rows
    weight[torch.from_numpy(keep)] = 1.0
    packed = pack("w", weight)
    assert packed.description["kind"] == "bits"
    assert packed.size == 32 * 9 * 4 + 8
    keep[:, 2:] = False  # 4 connections: 4 counts and 4 columns against 8 bytes of bits
    few = pack("w", torch.where(torch.from_numpy(keep)[..., None, None], weight, 0.0))
    assert few.description["kind"] == "bits"  # 8 against 8
    keep[1:] = False
    fewer = pack("w", torch.where(torch.from_numpy(keep)[..., None, None], weight, 0.0))
    assert fewer.description["kind"] == "rows"
    assert fewer.size == 9 * 4 + 4 + 1
    assert pack("w", torch.ones(4, 16, 3, 3)).description == {"kind": "dense"}


def test_wide_rows_take_wider_indices() -> None:
    weight = torch.zeros(2, 300)
    weight[0, 299] = weight[1, 7] = 1.0
    packed = pack("w", weight)
    assert packed.size == 2 * 4 + 2 * 2 + 2 * 2  # values, counts up to 300, columns up to 299
    assert torch.equal(unpack(packed.description, "w", packed.parts, most=600), weight)


def test_single_zeros_inside_kernels_count_where_that_is_smaller() -> None:
    weight = torch.zeros(8, 8, 3, 3)
    weight[:, :, 1, 1] = 1.0  # every connection is there, with one number of nine
    packed = pack("w", weight)
    assert packed.description["unit"] == 1
    assert packed.size == 64 * 4 + 72


def test_a_mask_is_kept_although_a_kept_kernel_is_zero() -> None:
    keep = np.array([[True, False], [True, True]])
    weight = torch.ones(2, 2, 3, 3) * torch.from_numpy(keep)[..., None, None]
    weight[0, 0] = 0
    packed = pack("w", weight, keep)
    assert np.array_equal(mask_of(packed.description, "w", packed.parts), keep)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 9),
    columns=st.integers(1, 300),
    kernel=st.sampled_from([(), (1,), (3, 3), (1, 2, 2)]),
    share=st.floats(0, 1),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
)
def test_the_same_bits_again(
    seed: int, rows: int, columns: int, kernel: tuple[int, ...], share: float, dtype: torch.dtype
) -> None:
    stream = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, *kernel, generator=stream)
    weight[torch.rand(rows, columns, generator=stream) < share] = 0
    flat = weight.reshape(-1)
    flat[torch.rand(len(flat), generator=stream) < 0.05] = -0.0
    flat[torch.rand(len(flat), generator=stream) < 0.02] = float("nan")
    weight = weight.to(dtype)
    packed = pack("w", weight)
    again = unpack(packed.description, "w", packed.parts, most=weight.numel())
    assert again.dtype == dtype
    assert torch.equal(again.view(torch.uint8), weight.contiguous().view(torch.uint8))
    assert packed.size <= weight.numel() * weight.element_size()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": [2, 10**12]}, "claims to have"),
        ({"shape": [2, -3]}, "no shape"),
        ({"shape": "big"}, "no shape"),
        ({"shape": [2.5, 300]}, "no shape"),
        ({"shape": [3, 300]}, "do not fit its shape"),
        ({"unit": 7}, "impossible size"),
        ({"unit": 0}, "impossible size"),
        ({"unit": True}, "impossible size"),
        ({"unit": 2}, "do not fit"),
        ({"dtype": "float64"}, "do not fit its connections"),
        ({"dtype": []}, "do not fit its connections"),
        ({"kind": "bits"}, "missing"),
        ({"kind": "pickle"}, "unknown way"),
    ],
)
def test_descriptions_that_lie(change: dict[str, object], message: str) -> None:
    weight = torch.zeros(2, 300)
    weight[0, 3] = weight[1, 7] = 1.0
    packed = pack("w", weight)
    with pytest.raises(InputError, match=message):
        unpack({**packed.description, **change}, "w", packed.parts, most=10_000)


def test_indices_that_lie() -> None:
    weight = torch.zeros(1, 300)
    weight[0, [3, 7]] = 1.0
    packed = pack("w", weight)
    for columns in ([7, 3], [3, 3], [3, 300], [3], [3, 7, 9]):
        raw = np.frombuffer(np.array(columns, "<u2").tobytes(), np.uint8).copy()
        parts = {**packed.parts, "w|columns": torch.from_numpy(raw)}
        with pytest.raises(InputError, match="rows of 'w'"):
            unpack(packed.description, "w", parts, most=600)
    with pytest.raises(InputError, match="are cut"):
        unpack(
            packed.description,
            "w",
            {**packed.parts, "w|columns": torch.zeros(3, dtype=torch.uint8)},
            most=600,
        )
    with pytest.raises(InputError, match="are no bytes"):
        unpack(packed.description, "w", {**packed.parts, "w|columns": torch.zeros(4)}, most=600)
