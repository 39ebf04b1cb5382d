"""Class-balanced calibration images from whatever yields batches."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from toynets import Net, images

from snacs.errors import InputError, ModelError
from snacs.network.batches import labels_of
from snacs.network.calibration import SCAN, Calibration, _Reservoir, _single, gather


class Mean(nn.Module):
    """Two inputs per image: its number and its class, so that every row can be recognised."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.fc = nn.Linear(2, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


def rows(labels: list[int], start: int = 0) -> tuple[Tensor, Tensor]:
    y = torch.tensor(labels)
    return torch.stack([torch.arange(start, start + len(y)).float(), y.float()], 1), y


def stream(labels: list[int], size: int = 7) -> Iterator[tuple[Tensor, Tensor]]:
    for i in range(0, len(labels), size):
        yield rows(labels[i : i + size], i)


def take(
    source: Any, *, count: int = 20, batch: int = 8, seed: int = 0, **more: Any
) -> Calibration:
    return gather(source, more.pop("model", Mean()), count=count, batch=batch, seed=seed, **more)


def test_one_shot_iterator_sorted_by_class_is_balanced() -> None:
    found = take(stream([0] * 60 + [1] * 60 + [2] * 60 + [3] * 60))
    assert Counter(found.labels.tolist()) == dict.fromkeys(range(4), 5)
    assert [len(batch[1]) for batch in found.batches] == [8, 8, 4]
    assert (found.classes, found.labelled, len(found)) == (4, True, 20)
    assert found.notes == ()


def test_labels_and_images_stay_together_and_differ() -> None:
    found = take(stream(list(range(10)) * 30))
    x = torch.cat([batch[0] for batch in found.batches])
    np.testing.assert_array_equal(x[:, 1].numpy(), found.labels)
    assert len(set(x[:, 0].tolist())) == 20
    again = torch.cat([labels_of(batch) for batch in found.batches])
    np.testing.assert_array_equal(again.numpy(), found.labels)


def test_classes_are_shuffled_over_batches() -> None:
    found = take(stream([0] * 100 + [1] * 100), count=40, batch=10)
    assert all(len(set(batch[1].tolist())) == 2 for batch in found.batches)


def test_endless_iterators_end() -> None:
    taken = []

    def endless() -> Iterator[tuple[Tensor, Tensor]]:
        for i in itertools.count():
            taken.append(i)
            yield rows([i % 3] * 5 + [(i + 1) % 3] * 5, i * 10)

    found = take(endless(), count=12)
    assert len(found) == 12
    assert len(taken) == SCAN * 12 // 10


def test_samples_come_from_the_whole_stream() -> None:
    found = take(stream([i % 2 for i in range(2000)]), count=100)
    numbers = torch.cat([batch[0][:, 0] for batch in found.batches])
    # Uniform on 0…2000: the mean of 100 has a standard error of 58; allow four.
    assert abs(float(numbers.mean()) - 1000) < 232


def test_same_seed_same_images_whatever_the_batches() -> None:
    labels = [i * i % 5 for i in range(300)]
    one, two = take(stream(labels, 7)), take(stream(labels, 50))
    other = take(stream(labels, 7), seed=1)
    assert one.sha256 == two.sha256
    assert one.sha256 != other.sha256
    np.testing.assert_array_equal(one.labels, two.labels)


def test_hash_sees_values_shapes_types_and_labels() -> None:
    x = torch.zeros(4, 2)
    keys = {
        Calibration((x,), np.array([0, 1, 0, 1]), 2).sha256,
        Calibration((x,), np.array([0, 1, 1, 1]), 2).sha256,
        Calibration((x.double(),), np.array([0, 1, 0, 1]), 2).sha256,
        Calibration((x.bfloat16(),), np.array([0, 1, 0, 1]), 2).sha256,
        Calibration((x.reshape(2, 4),), np.array([0, 1, 0, 1]), 2).sha256,
        Calibration((x + 1,), np.array([0, 1, 0, 1]), 2).sha256,
    }
    assert len(keys) == 6


def test_batches_keep_their_form_and_type() -> None:
    def forward(model: nn.Module, batch: dict[str, Any]) -> Tensor:
        return model(batch["image"].float().mean((1, 2, 3))[:, None].expand(-1, 2) * batch["scale"])

    batches = [
        {
            "image": torch.randint(0, 255, (6, 3, 4, 4), dtype=torch.uint8),
            "labels": [0, 1, 2, 0, 1, 2],
            "scale": torch.ones(1, 2),
            "name": "fold",
        }
    ] * 3
    found = take(batches, count=12, forward=forward)
    first = found.batches[0]
    assert first["image"].dtype == torch.uint8
    assert first["image"].shape == (8, 3, 4, 4)
    assert first["scale"].shape == (1, 2)
    assert first["name"] == "fold"
    np.testing.assert_array_equal(first["labels"].numpy(), found.labels[:8])


def test_kept_images_do_not_hold_their_batches_in_memory() -> None:
    big = rows([0, 1] * 500)
    x, y = _single(big, 3, 1000)
    assert x.tolist() == [3.0, 1.0]
    assert int(y) == 1
    assert x.untyped_storage().nbytes() == 2 * 4
    assert y.untyped_storage().nbytes() == 8


def test_missing_labels_are_predicted_and_noted() -> None:
    model = Mean(3)
    with torch.no_grad():
        model.fc.weight.copy_(torch.tensor([[0.0, 1.0], [0.0, -1.0], [0.0, 0.0]]))
        model.fc.bias.zero_()
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    found = take([x], model=model, count=30)
    values = torch.cat(list(found.batches))[:, 1]
    np.testing.assert_array_equal(found.labels, (values < 0).long().numpy())
    assert not found.labelled
    assert any("own predictions" in note for note in found.notes)


def test_imbalance_and_shortage_are_noted() -> None:
    found = take(stream([0] * 40 + [1] * 2), count=50)
    assert len(found) == 42
    assert any("Only 42 images" in note for note in found.notes)
    assert any("imbalanced: 2 to 40" in note for note in found.notes)


def test_rare_classes_are_all_kept() -> None:
    labels = [0] * 200
    labels[150:153] = [1, 1, 2]
    labels[199] = 2
    found = take(stream(labels), count=12)
    assert Counter(found.labels.tolist()) == {0: 8, 1: 2, 2: 2}


def test_train_mode_is_restored() -> None:
    model = Mean().train()
    take(stream([0, 1] * 20), model=model)
    assert model.training


def test_progress_reports_the_scan() -> None:
    seen: list[tuple[int, int]] = []
    take(stream([0, 1] * 10), count=4, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(7, 80), (14, 80), (20, 80)]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "no batches"),
        (iter(()), "no batches"),
        (torch.zeros(4, 2), r"pass \[batch\]"),
        (3, "iterable of batches"),
        ([rows([1] * 9)], r"one class only \(1\)"),
        ([rows([0, 1, 2])], "3 images are too few for 3 classes"),
        ([rows([0, 0, 1, 11])], r"Label 11 is out of range: the network has 10 outputs"),
        ([(torch.zeros(4, 2), torch.tensor([0, 1, -1, 1]))], "negative"),
        ([(torch.zeros(4, 2), torch.tensor([0.0, 1.0, 1.0, 0.0]))], "whole numbers"),
        ([(torch.zeros(4, 2), torch.zeros(4, 3).long())], "one class index per image"),
        (
            [(torch.tensor([[0.0, float("nan")]] * 4), torch.tensor([0, 1, 0, 1]))],
            "NaN or infinite",
        ),
        ([rows([0, 1]), torch.zeros(2, 2)], "Some batches carry labels"),
        (
            [rows([0, 1]), (torch.zeros(2, 3), torch.tensor([0, 1]))],
            "one shape and type",
        ),
    ],
)
def test_bad_images_are_refused(source: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        take(source)


def test_too_few_for_many_classes_says_how_many() -> None:
    labels = list(range(30)) * 4
    with pytest.raises(InputError, match="Ask for 60 or more"):
        take(stream(labels), model=Mean(30), count=40)


def test_a_batch_that_the_network_rejects() -> None:
    with pytest.raises(ModelError, match="forward failed"):
        take([(images(3, 4, 4), torch.arange(6) % 2)])


def test_an_output_that_is_no_score_table() -> None:
    net = Net(lambda net, x: x.mean())
    with pytest.raises(ModelError, match="class scores"):
        take(stream([0, 1] * 10), model=net)


@settings(deadline=None, max_examples=60)
@given(
    labels=st.lists(st.integers(0, 6), min_size=1, max_size=200),
    count=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_no_class_gives_way_to_a_larger_one(labels: list[int], count: int, seed: int) -> None:
    kept = _Reservoir(count, seed)
    for i, label in enumerate(labels):
        kept.offer(label, lambda i=i: i)
    samples = kept.samples()
    assert len(samples) == min(count, len(labels))
    assert all(labels[s.value] == s.label for s in samples)
    assert len({s.value for s in samples}) == len(samples)
    given_, got = Counter(labels), Counter(s.label for s in samples)
    largest = max(got.values())
    for label, available in given_.items():
        # A class lost images only if it had as many as the others have now, give or take one.
        assert got[label] == available or got[label] >= largest - 1
