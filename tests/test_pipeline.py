"""The whole method on a small trained network: real images, real SVMs, real repair."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import snacs
from snacs.errors import InputError
from snacs.store import Run
from snacs.zoo.data import open_data
from snacs.zoo.entry import seeded
from snacs.zoo.networks import SmallConvNet


@pytest.fixture(scope="module")
def digits():
    return {
        split: list(open_data("digits", split=split).batches(100)) for split in ("train", "test")
    }


@pytest.fixture(scope="module")
def trained(digits) -> nn.Module:
    """A small network that reads digits: a few hundred plain SGD steps, always the same."""
    model = seeded(lambda: SmallConvNet(width=8), seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(6):
        for x, y in digits["train"]:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert snacs.accuracy(model.eval(), digits["test"]).fraction > 0.9
    return model


@pytest.fixture(scope="module")
def pruned(trained, digits):
    return snacs.prune(trained, digits["train"], target=0.6, test=digits["test"], count=300)


def test_the_target_is_met_within_one_connection(pruned):
    largest = max(part.layer.kernel for part in pruned.plan.layers)
    gone = pruned.plan.pruned * pruned.plan.structure.weights
    wanted = 0.6 * pruned.plan.structure.weights
    assert wanted <= gone < wanted + largest
    assert pruned.cost.pruned == pytest.approx(pruned.plan.pruned)


def test_masked_weights_are_zero_and_the_rest_is_not(pruned):
    for part in pruned.plan.layers:
        weight = pruned.model.get_submodule(part.layer.name).weight.detach().flatten(2)
        alive = (weight != 0).any(dim=2).numpy()
        np.testing.assert_array_equal(alive, part.keep)


def test_the_given_model_is_untouched(trained, digits):
    before = copy.deepcopy(trained.state_dict())
    trained.train()
    snacs.prune(trained, digits["train"], target=0.5, count=100, shares=())
    assert trained.training
    assert all(torch.equal(before[k], v) for k, v in trained.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in trained.modules())
    trained.eval()


def test_repair_brings_back_accuracy_without_labels_or_gradients(pruned):
    steps = pruned.accuracy
    assert list(steps) == ["dense", "pruned", "repaired"]
    assert steps["repaired"].fraction > steps["pruned"].fraction
    assert pruned.repair.after < pruned.repair.before


def test_every_layer_is_in_the_plan_or_has_a_reason(pruned):
    planned = {part.layer.name for part in pruned.plan.layers}
    for layer in pruned.plan.structure:
        assert (layer.name in planned) != bool(layer.kept_because)
    assert {"features.0", "classifier"} == {
        layer.name for layer in pruned.plan.structure if not layer.prunable
    }


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_the_same_seed_gives_the_same_bits_with_any_number_of_workers(trained, digits, preset):
    plans = [
        snacs.plan(trained, digits["train"], target=0.5, preset=preset, count=200, jobs=jobs)
        for jobs in (1, 2)
    ]
    for ours, theirs in zip(*(plan.layers for plan in plans), strict=True):
        np.testing.assert_array_equal(ours.scores, theirs.scores)
        np.testing.assert_array_equal(ours.keep, theirs.keep)
        np.testing.assert_array_equal(ours.curve.accuracy, theirs.curve.accuracy)


def test_a_run_folder_is_reused_and_another_target_needs_no_new_scores(trained, digits, tmp_path):
    stages: list[str] = []

    def watch(stage: str, done: int, total: int, detail: str = "") -> None:
        if done < total:
            stages.append(stage)

    # Choosing layer after layer depends on the target, and nesting with it.
    common = {"count": 150, "run": tmp_path / "run", "progress": watch, "sequential": False}
    first = snacs.plan(trained, digits["train"], target=0.5, **common)
    assert {"scores", "curves"} <= set(stages)
    stages.clear()
    again = snacs.plan(trained, digits["train"], target=0.5, **common)
    more = snacs.plan(trained, digits["train"], target=0.7, **common)
    assert "scores" not in stages
    assert "curves" not in stages
    for name in first.masks:
        np.testing.assert_array_equal(first.masks[name], again.masks[name])
        assert not (more.masks[name] & ~first.masks[name]).any()  # monotone in the target


def test_a_plan_can_be_saved_loaded_and_applied_elsewhere(pruned, trained, tmp_path, digits):
    pruned.plan.save(tmp_path / "plan")
    model = copy.deepcopy(trained)
    snacs.apply_(model, snacs.Plan.load(tmp_path / "plan"))
    part = pruned.plan.layers[0]
    weight = model.get_submodule(part.layer.name).weight.detach().flatten(2)
    np.testing.assert_array_equal((weight != 0).any(dim=2).numpy(), part.keep)
    snacs.repair_(model, digits["train"], count=200)
    snacs.bake_(model)
    assert list(model.state_dict()) == list(trained.state_dict())


def test_a_users_own_training_loop_keeps_the_zeros(pruned, digits):
    model = copy.deepcopy(pruned.model).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-2)
    for x, y in digits["train"][:3]:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    part = pruned.plan.layers[1]
    weight = model.get_submodule(part.layer.name).weight.detach().flatten(2).numpy()
    assert not weight[~part.keep].any()


def test_retraining_resumes_and_history_is_kept(trained, digits, tmp_path):
    recipe = snacs.Recipe(epochs=2, learning_rate=0.02)
    common = {
        "target": 0.7, "count": 150, "train": digits["train"], "recipe": recipe,
        "test": digits["test"], "run": tmp_path / "run", "shares": (),
    }  # fmt: skip
    first = snacs.prune(trained, digits["train"], **common)
    again = snacs.prune(trained, digits["train"], **common)
    assert [row.epoch for row in first.history.rows] == [1, 2]
    assert again.history.resumed == 2
    assert first.accuracy == again.accuracy
    for (name, ours), theirs in zip(
        first.model.state_dict().items(), again.model.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, theirs), name


@pytest.mark.parametrize("repair", [True, False])
def test_doubt_moves_the_masks_towards_magnitudes(trained, digits, repair):
    common = {"target": 0.6, "count": 150, "repair": repair, "curves": False}
    plans = {d: snacs.plan(trained, digits["train"], doubt=d, **common) for d in (0.0, 1.0, 1e9)}
    kept = {}
    for doubt, plan in plans.items():
        loud = 0.0
        for part in plan.layers:
            weight = trained.get_submodule(part.layer.name).weight.detach().double()
            norms = (
                weight.flatten(2).norm(dim=2).numpy() if weight.ndim > 2 else weight.abs().numpy()
            )
            norms = norms.reshape(part.keep.shape)
            loud += float((norms * part.keep).sum() / norms.sum())
        kept[doubt] = loud
    assert kept[0.0] < min(kept[1.0], kept[1e9])
    assert plans[0.0].pruned == plans[1.0].pruned


def test_what_is_chosen_depends_on_repair_only_by_how_earlier_layers_are_settled(trained, digits):
    common = {"target": 0.6, "count": 150, "curves": False}
    with_it, without = (
        snacs.plan(trained, digits["train"], repair=repair, **common).layers
        for repair in (True, False)
    )
    # The first layer sees the images either way; the last one what the others were made of.
    np.testing.assert_allclose(with_it[0].scores, without[0].scores)
    assert not np.allclose(with_it[-1].scores, without[-1].scores)


def test_what_a_recipe_warns_of_is_said(trained, digits):
    recipe = snacs.Recipe(epochs=1, learning_rate=0.02, note="Printed as 0.9.")
    found = snacs.prune(
        trained, digits["train"][:2], target=0.5, count=60, repair=False, train=digits["train"][:1],
        recipe=recipe,
    )  # fmt: skip
    assert "Printed as 0.9." in found.notes


def test_where_the_recipe_distills_the_dense_network_teaches(trained, digits):
    recipe = snacs.Recipe(epochs=1, learning_rate=0.02, distillation=1.0)
    common = {"target": 0.7, "count": 150}
    found = snacs.prune(
        trained, digits["train"], train=digits["train"], recipe=recipe, **common
    ).model
    by_hand = snacs.prune(trained, digits["train"], **common).model
    snacs.retrain_(by_hand, digits["train"], recipe=recipe, teacher=trained)
    for (name, ours), theirs in zip(
        found.state_dict().items(), by_hand.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, theirs), name


def test_a_recipe_by_name_does_without_a_teacher(pruned, trained, digits):
    alone, taught = (copy.deepcopy(pruned.model) for _ in range(2))
    train = digits["train"][:2]
    history = snacs.retrain_(alone, train, recipe="brief")
    snacs.retrain_(taught, train, recipe="brief", teacher=trained)
    assert len(history.rows) == 1
    assert not torch.equal(alone.features[0].weight, taught.features[0].weight)
    with pytest.raises(snacs.InputError, match="teacher"):
        snacs.retrain_(alone, train, recipe=snacs.RECIPES["brief"])


@pytest.mark.parametrize("score", ["mint", "l1", "l2", "l2-activation", "random"])
@pytest.mark.parametrize("allocation", ["uniform", "global", "tempered"])
def test_every_score_and_allocation_runs_through_the_same_pipeline(
    trained, digits, score, allocation
):
    plan = snacs.plan(
        trained, digits["train"], target=0.5, count=60, score=score, allocation=allocation,
        groups=4 if score == "mint" else None, shares=(),
    )  # fmt: skip
    assert plan.pruned == pytest.approx(0.5, abs=0.01)


def test_macs_tolerance_and_manual_limits(trained, digits):
    images = digits["train"]
    macs = snacs.plan(trained, images, target=0.5, budget="macs", count=100, shares=())
    assert macs.pruned_macs == pytest.approx(0.5, abs=0.01)
    tolerant = snacs.plan(trained, images, tolerance=0.05, count=100, shares=())
    for part in tolerant.layers:
        level = round(part.limit * 100)
        if level:
            assert part.curve.accuracy[level - 1] >= 0.95 * part.curve.base
    manual = snacs.plan(
        trained, images, allocation="manual", limits={"features.4": 0.25}, count=100, shares=()
    )
    assert manual["features.4"].pruned == 0.25
    assert manual["features.8"].pruned == 0.0


def test_filter_granularity_removes_whole_filters(trained, digits):
    plan = snacs.plan(
        trained, digits["train"], target=0.4, count=100, granularity="filter", shares=()
    )
    dead = sum(int(part.dead.sum()) for part in plan.layers)
    assert dead > 0
    model = copy.deepcopy(trained)
    snacs.apply_(model, plan)
    assert snacs.accuracy(model, digits["test"]).n == 450


class _TwoInputs(nn.Module):
    """Keyword inputs and a dict output, behind one Flatten."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(1, 4, 3, padding=1)
        self.right = nn.Conv2d(1, 4, 3, padding=1)
        self.mix = nn.Conv2d(8, 6, 3, padding=1)
        self.hidden = nn.Linear(6 * 64, 16)
        self.head = nn.Linear(16, 10)

    def forward(self, *, image: Tensor, mirror: Tensor) -> dict[str, Tensor]:
        both = torch.cat([self.left(image), self.right(mirror)], dim=1).relu()
        flat = self.mix(both).relu().flatten(1)
        return {"scores": self.head(self.hidden(flat).relu())}


def test_several_inputs_and_dict_outputs_work_through_forward(digits):
    torch.manual_seed(0)
    batches = [{"image": x, "mirror": x.flip(-1), "labels": y} for x, y in digits["train"][:3]]

    def forward(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return model(image=batch["image"], mirror=batch["mirror"])["scores"]

    result = snacs.prune(_TwoInputs(), batches, target=0.5, forward=forward, count=200)
    hidden = result.plan["hidden"].layer
    assert (hidden.c_in, hidden.kernel) == (6, 64)
    assert result.plan.pruned == pytest.approx(0.5, abs=0.01)


def test_missing_labels_use_the_networks_own_predictions_and_say_so(trained, digits):
    plan = snacs.plan(trained, [x for x, _ in digits["train"]], target=0.5, count=150)
    assert any("predictions" in note for note in plan.notes)


def test_one_shot_and_endless_iterators_are_fine(trained, digits):
    once = snacs.plan(trained, iter(digits["train"]), target=0.5, count=60, shares=())
    endless = itertools.cycle(digits["train"])
    assert once.pruned == pytest.approx(0.5, abs=0.01)
    assert snacs.plan(trained, endless, target=0.5, count=60, shares=()).pruned == once.pruned


def test_half_precision_networks_are_planned(trained, digits):
    model = copy.deepcopy(trained).to(torch.bfloat16)
    plan = snacs.plan(model, digits["train"], target=0.5, count=60, shares=())
    assert plan.pruned == pytest.approx(0.5, abs=0.01)
    assert next(model.parameters()).dtype == torch.bfloat16


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_network_on_a_gpu_is_planned_where_it_is(trained, digits):
    model = copy.deepcopy(trained).cuda()
    result = snacs.prune(model, digits["train"], target=0.5, count=60)
    assert next(result.model.parameters()).is_cuda


def _broken(model: nn.Module, name: str, value: float) -> nn.Module:
    model = copy.deepcopy(model)
    with torch.no_grad():
        model.get_submodule(name).weight[0, 0] = value
    return model


class _Raises(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.conv(x)
        raise RuntimeError("boom")


BAD = {
    "target too high": ({"target": 1.0}, "strictly between 0 and 1"),
    "target unreachable": ({"target": 0.999}, "at most|most that can"),
    "no goal": ({}, "how far to prune"),
    "unknown option": ({"target": 0.5, "widht": 1.0}, "widht.*width"),
    "ignore matches nothing": ({"target": 0.5, "ignore": ["fetures.4"]}, "fetures.4"),
    "protected layer of nothing": (
        {"target": 0.5, "protect": {"features.5": 0.1}},
        "no prunable layer",
    ),
    "protected layer that is kept": ({"target": 0.5, "protect": {"classifier": 0.1}}, "kept"),
    "negative seed": ({"target": 0.5, "seed": -1}, "'seed'"),
    "no workers": ({"target": 0.5, "jobs": 0}, "'jobs'"),
    "manual limit of nothing": (
        {"allocation": "manual", "limits": {"features.9": 0.5}},
        r"features\.9",
    ),
    "all ignored": ({"target": 0.5, "ignore": [nn.Conv2d]}, "othing"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_named_and_nothing_is_written(trained, digits, tmp_path, case):
    options, message = BAD[case]
    with pytest.raises(snacs.InputError, match=message):
        snacs.plan(trained, digits["train"], count=60, run=tmp_path / "run", **options)
    assert not (tmp_path / "run" / "plan").exists()


def _labels(batches, change):
    return [(x, change(y)) for x, y in batches]


BAD_IMAGES = {
    "no batches": (lambda b: [], "no batches"),
    "not an iterable": (lambda b: 3, "iterable"),
    "one class": (lambda b: _labels(b, torch.zeros_like), "one class"),
    "float labels": (lambda b: _labels(b, lambda y: y.float()), "whole numbers"),
    "label out of range": (lambda b: _labels(b, lambda y: y + 5), "out of range"),
    "negative label": (lambda b: _labels(b, lambda y: y - 1), "negative"),
    "too few images": (lambda b: [(b[0][0][:7], torch.arange(7))], "too few"),
    "NaN images": (lambda b: [(x * float("nan"), y) for x, y in b], "NaN"),
}


@pytest.mark.parametrize("case", BAD_IMAGES)
def test_bad_images_are_named(trained, digits, case):
    change, message = BAD_IMAGES[case]
    with pytest.raises(snacs.InputError, match=message):
        snacs.plan(trained, change(digits["train"]), target=0.5, count=60)


def test_networks_that_cannot_be_used_are_named(trained, digits, tmp_path):
    images = digits["train"]
    for value in (float("nan"), float("inf")):
        with pytest.raises(snacs.InputError, match=r"features\.4"):
            snacs.plan(_broken(trained, "features.4", value), images, target=0.5, count=60)
    with pytest.raises(snacs.ModelError, match=r"shape|channels"):
        snacs.plan(trained, [(x.expand(-1, 3, -1, -1), y) for x, y in images], target=0.5)
    raising = _Raises()
    with pytest.raises(snacs.ModelError, match="boom"):
        snacs.plan(raising, images, target=0.5, count=60)
    assert not raising.conv._forward_hooks
    assert not raising.conv._forward_pre_hooks
    with pytest.raises(snacs.InputError, match=r"[Nn]othing"):
        snacs.plan(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), images, target=0.5, count=60)


def test_infinite_activations_are_named(trained, digits):
    model = copy.deepcopy(trained)
    with torch.no_grad():
        model.features[1].running_var.fill_(-1.0)  # the root of a negative variance is NaN
    with pytest.raises(snacs.InputError, match=r"features\.4"):
        snacs.plan(model, digits["train"], target=0.5, count=60)


def test_constant_filters_score_zero_and_go_first(trained, digits):
    model = copy.deepcopy(trained)
    with torch.no_grad():
        model.features[4].weight[3] = 0.0
    plan = snacs.plan(model, digits["train"], target=0.3, count=100, shares=())
    assert not plan["features.4"].scores[3].any()


def test_foreign_and_locked_run_folders_are_refused(trained, digits, tmp_path: Path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(snacs.RunFolderError, match="not a run folder"):
        snacs.plan(trained, digits["train"], target=0.5, run=tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "precious"
    with Run(tmp_path / "run"), pytest.raises(snacs.RunFolderError, match="in use"):
        snacs.plan(trained, digits["train"], target=0.5, run=tmp_path / "run")


def test_other_wiring_or_training_data_never_finds_old_stages(trained, digits, tmp_path):
    """Weights alone do not make a network, and a recipe alone no training."""
    rewired = copy.deepcopy(trained)
    for index in (2, 6, 10):
        rewired.features[index] = nn.Tanh()
    common = {"target": 0.5, "count": 100, "shares": ()}
    snacs.plan(trained, digits["train"], run=tmp_path / "run", **common)
    reused = snacs.plan(rewired, digits["train"], run=tmp_path / "run", **common)
    fresh = snacs.plan(rewired, digits["train"], **common)
    for name, mask in fresh.masks.items():
        np.testing.assert_array_equal(reused.masks[name], mask)
    recipe = snacs.Recipe(epochs=1, learning_rate=0.02)
    again = {**common, "recipe": recipe, "run": tmp_path / "run"}
    snacs.prune(trained, digits["train"], train=digits["train"], **again)
    half = [(x[:50], y[:50]) for x, y in digits["train"]]
    other = snacs.prune(trained, digits["train"], train=half, **again)
    assert other.history.resumed == 0


def test_one_shot_test_and_batchnorm_images_are_kept(trained, digits):
    result = snacs.prune(
        trained, digits["train"], target=0.5, count=60, shares=(),
        test=iter(digits["test"]), bn_images=iter(digits["train"][:2]),
    )  # fmt: skip
    assert result.accuracy["repaired"].n == 450


def test_a_pruned_network_can_be_pruned_further(pruned, digits):
    further = snacs.prune(pruned.model, digits["train"], target=0.8, count=200, shares=())
    assert further.plan.pruned == pytest.approx(0.8, abs=0.01)
    assert further.repair.after <= further.repair.before


def test_repair_needs_no_labels_and_no_classes(trained, digits):
    model = copy.deepcopy(trained)
    plan = snacs.plan(model, digits["train"], target=0.5, count=60, shares=())
    snacs.apply_(model, plan)
    one_class = [x[y == 3] for x, y in digits["train"]]
    report = snacs.repair_(model, one_class, count=60)
    assert report.after <= report.before


def test_a_full_disk_is_not_blamed_on_the_network(trained, digits, tmp_path, monkeypatch):
    from snacs.network.growing import GrowingArray

    def full(self, values):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(GrowingArray, "append", full)
    with pytest.raises(snacs.RunFolderError, match="disk is full"):
        snacs.plan(trained, digits["train"], target=0.5, count=60, run=tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.npy"))


def test_numpy_and_namedtuple_batches_are_read(trained, digits):
    from collections import namedtuple

    pair = namedtuple("pair", ["image", "label"])
    named = [pair(x, y) for x, y in digits["train"]]
    arrays = [(x.numpy(), y.numpy()) for x, y in digits["train"]]
    common = {"target": 0.5, "count": 60, "shares": ()}
    plans = [snacs.plan(trained, images, **common) for images in (digits["train"], named, arrays)]
    for other in plans[1:]:
        for name, mask in plans[0].masks.items():
            np.testing.assert_array_equal(other.masks[name], mask)


def test_what_is_no_network_or_no_plan_is_named(pruned, digits):
    image = torch.rand(2, 1, 8, 8)
    for verb in (snacs.compact, snacs.compile):
        with pytest.raises(InputError, match=r"Got Pruned\. The network .* is its \.model"):
            verb(pruned, image)
    with pytest.raises(InputError, match=r"torch\.nn\.Module\. Got str"):
        snacs.compact("network", image)
    with pytest.raises(InputError, match=r"Plan\.load"):
        snacs.apply_(SmallConvNet(), "runs/plan")
    assert pruned.plan.facts["input_shape"] == [1, 8, 8]


def test_exchange_changes_which_connections_stay_and_not_how_many(trained, digits):
    common = {"target": 0.6, "count": 150, "curves": False}
    plain = snacs.plan(trained, digits["train"], **common)
    made = snacs.plan(
        trained, digits["train"], exchange=1200, protect={"features.4": 0.25}, **common
    )
    free = snacs.plan(trained, digits["train"], exchange=1200, **common)
    assert any(note.endswith("after 12 batches.") for note in free.notes)
    for before, after, held in zip(plain.layers, free.layers, made.layers, strict=True):
        assert after.kept == before.kept
        assert held.keep[held.protected].all()
    assert any((a.keep != b.keep).any() for a, b in zip(plain.layers, free.layers, strict=True))


def test_exchange_says_how_many_images_there_were_and_needs_them_twice(trained, digits):
    common = {"target": 0.6, "count": 150, "curves": False, "exchange": 500}
    few = snacs.plan(trained, digits["train"], exchange_images=digits["train"][:2], **common)
    assert "There were 200 images to exchange on, not 500." in few.notes
    with pytest.raises(InputError, match="exchange_images="):
        snacs.plan(trained, iter(digits["train"]), **common)
    alone = snacs.plan(trained, iter(digits["train"]), exchange_images=digits["train"], **common)
    assert not any("There were" in note for note in alone.notes)


def test_a_plan_knows_the_images_it_was_exchanged_on(trained, digits, tmp_path):
    seen: list[str] = []
    common = {
        "target": 0.6, "count": 150, "curves": False, "exchange": 200, "run": tmp_path / "run",
        "progress": lambda stage, *_: seen.append(stage),
    }  # fmt: skip
    first = snacs.plan(trained, digits["train"], **common)
    seen.clear()
    again = snacs.plan(trained, digits["train"], **common)
    assert "exchange" not in seen
    for one, other in zip(first.layers, again.layers, strict=True):
        np.testing.assert_array_equal(one.keep, other.keep)
    snacs.plan(trained, digits["train"], exchange_images=digits["test"], **common)
    assert "exchange" in seen


def test_repair_goes_half_of_the_way_after_an_exchange(trained, digits):
    common = {"target": 0.6, "count": 150, "curves": False, "logits": False}
    half, whole = (
        snacs.prune(trained, digits["train"], exchange=600, solved_share=share, **common)
        for share in (None, 1.0)
    )
    masked = copy.deepcopy(trained)
    snacs.apply_(masked, half.plan)
    for name in (layer.layer.name for layer in half.plan.layers):
        start, middle, end = (
            model.get_submodule(name).weight.detach() for model in (masked, half.model, whole.model)
        )
        # The only steps of either are least squares; float32 rounding.
        torch.testing.assert_close(middle, (start + end) / 2, rtol=1e-5, atol=1e-6)
