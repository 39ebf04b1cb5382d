"""The loop learns, holds masks, and continues with the same bits after being killed."""

from __future__ import annotations

import copy
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from snacs.errors import InputError, ModelError, RunFolderError
from snacs.network import masking
from snacs.network.between import drawn_back_, floating
from snacs.network.cost import accuracy
from snacs.training.loop import train_
from snacs.training.recipes import Recipe

RECIPE = Recipe(epochs=3, learning_rate=0.05, warmup=0.5, weight_decay=1e-3, nesterov=True)


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny layers on a busy machine; also one less reason for bits to differ."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def build():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Dropout(0.1), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


def digits():
    data, labels = load_digits(return_X_y=True)
    x = torch.from_numpy(data.reshape(-1, 1, 8, 8) / 8 - 1).float()
    return x, torch.from_numpy(labels)


X, Y = digits()


def loader(count=640, seed=None):
    """A shuffling DataLoader over the first images."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return DataLoader(
        TensorDataset(X[:count], Y[:count]), batch_size=64, shuffle=True, generator=generator
    )


TEST = [(X[1400:], Y[1400:])]


def same(model, other):
    return all(
        torch.equal(a, b)
        for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_it_learns_digits():
    model = build()
    before = accuracy(model, TEST).fraction
    history = train_(model, loader(1400), recipe=Recipe(epochs=6, learning_rate=0.05, warmup=0.5))
    assert before < 0.3
    assert accuracy(model, TEST).fraction > 0.93  # 0.96 with this seed; a linear model reaches 0.90
    assert [row.epoch for row in history.rows] == [1, 2, 3, 4, 5, 6]
    assert history.rows[-1].loss < 0.2 * history.rows[0].loss
    assert history.rows[-1].accuracy > 0.97
    assert all(row.validation is None for row in history.rows)
    assert history.chosen == 6


def test_plain_sgd_step_by_hand():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    twin = copy.deepcopy(model)
    recipe = Recipe(
        epochs=2, learning_rate=0.1, schedule="step", milestones=(1,), momentum=0.9,
        weight_decay=0.01, label_smoothing=0.1, clip=0.5,
    )  # fmt: skip
    # One batch per epoch: step k is taken at position k + 0.5.
    train_(model, [(X[:64], Y[:64])], recipe=recipe)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for rate in (0.1, 0.01):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        nn.functional.cross_entropy(twin(X[:64]), Y[:64], label_smoothing=0.1).backward()
        nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
        optimizer.step()
    assert same(model, twin)


def test_masked_weights_stay_zero_and_the_others_learn():
    model = build()
    rng = np.random.default_rng(0)
    masks = {"3": rng.random((16, 8)) < 0.4, "8": rng.random((10, 16)) < 0.5}
    masks["3"][5] = False
    masking.apply_(model, masks)
    before = {name: model.get_submodule(name).weight.detach().clone() for name in masks}
    train_(model, loader(), recipe=Recipe(epochs=2, learning_rate=0.1, weight_decay=0.05, clip=1.0))
    for name, keep in masks.items():
        weight = model.get_submodule(name).weight.detach()
        kernels = weight.reshape(*keep.shape, -1)
        assert not kernels[~keep].any()
        assert bool((weight != before[name]).any())
        assert np.array_equal(masking.masks_of(model)[name], keep)
    assert float(model[3].bias[5].detach()) == 0.0
    assert type(model[0]) is nn.Conv2d


@pytest.mark.parametrize("start_share", [0.0, 0.5])
@pytest.mark.parametrize("own_generator", [None, 3])
def test_resume_gives_the_same_bits(tmp_path, own_generator, start_share):
    whole, parts = build(), build()
    recipe = replace(RECIPE, start_share=start_share)
    expected = train_(whole, loader(seed=own_generator), recipe=recipe, validation=TEST)
    folder = tmp_path / "run"
    for stop in (2, 3):

        def interrupt(row, stop=stop):
            if row.epoch == stop and row.batch == 4:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train_(
                parts, loader(seed=own_generator), recipe=recipe, validation=TEST, folder=folder,
                progress=interrupt,
            )  # fmt: skip
        parts = build()
    found = train_(parts, loader(seed=own_generator), recipe=recipe, validation=TEST, folder=folder)
    assert found.resumed == 2
    assert same(whole, parts)
    assert [(r.loss, r.validation) for r in found.rows] == [
        (r.loss, r.validation) for r in expected.rows
    ]
    again = build()
    finished = train_(again, loader(), recipe=recipe, validation=TEST, folder=folder)
    assert finished.resumed == 3
    assert same(whole, again)


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
import torch
torch.set_num_threads(1)
from test_loop import build, masked, loader, RECIPE
from snacs.training.loop import train_
def stop(row):
    if row.epoch == 2 and row.batch == 5:
        os.kill(os.getpid(), signal.SIGKILL)
train_(masked(), loader(), recipe=RECIPE, folder=sys.argv[1], progress=stop)
"""


def masked():
    model = build()
    masking.apply_(model, {"3": np.arange(128).reshape(16, 8) % 3 > 0})
    return model


def test_a_killed_process_is_continued_with_the_same_bits(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run"), str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == -signal.SIGKILL, done.stderr
    whole, resumed = masked(), masked()
    train_(whole, loader(), recipe=RECIPE)
    history = train_(resumed, loader(), recipe=RECIPE, folder=tmp_path / "run")
    assert history.resumed == 1
    assert same(whole, resumed)


TWO = """
import sys
sys.path.insert(0, sys.argv[2])
import torch
torch.set_num_threads(1)
from test_loop import X, Y, masked, RECIPE
from snacs.training.loop import train_
model = masked()
data = [(X[i : i + 64], Y[i : i + 64]) for i in range(0, 448, 64)]
history = train_(model, data, recipe=RECIPE, folder=sys.argv[1])
rank = torch.distributed.get_rank()
state = {k: v for k, v in model.state_dict().items()}
torch.save({"state": state, "loss": history.rows[-1].loss}, f"{sys.argv[1]}/rank{rank}.pt")
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_train_one_network(tmp_path):
    script = tmp_path / "two.py"
    script.write_text(TWO)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
        str(script), str(tmp_path), str(Path(__file__).parent),
    ]  # fmt: skip
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"rank{r}.pt", weights_only=True) for r in (0, 1))
    trained = [k for k in first["state"] if "running" not in k]  # BatchNorm is local by default
    assert all(torch.equal(first["state"][k], second["state"][k]) for k in trained)
    assert first["loss"] == second["loss"]
    start = masked().state_dict()
    assert not torch.equal(first["state"]["0.weight"], start["0.weight"])


def test_a_damaged_checkpoint_costs_one_epoch_not_the_result(tmp_path):
    whole, again = build(), build()
    train_(whole, loader(), recipe=RECIPE, folder=tmp_path)
    newest = max(tmp_path.glob("epoch-*"))
    newest.write_bytes(newest.read_bytes()[:-10])
    history = train_(again, loader(), recipe=RECIPE, folder=tmp_path)
    assert history.resumed == 2
    assert any("damaged" in note for note in history.notes)
    assert same(whole, again)


def test_a_folder_of_another_run_is_refused(tmp_path):
    short = Recipe(epochs=1, learning_rate=0.05)
    train_(masked(), loader(64), recipe=short, folder=tmp_path)
    with pytest.raises(RunFolderError, match="learning_rate"):
        train_(masked(), loader(64), recipe=Recipe(epochs=1, learning_rate=0.1), folder=tmp_path)
    with pytest.raises(RunFolderError, match="seed"):
        train_(masked(), loader(64), recipe=short, folder=tmp_path, seed=1)
    with pytest.raises(RunFolderError, match="the network"):
        train_(build(), loader(64), recipe=short, folder=tmp_path)
    other = build()
    masking.apply_(other, {"3": np.arange(128).reshape(16, 8) % 3 > 1})
    with pytest.raises(RunFolderError, match="the masks"):
        train_(other, loader(64), recipe=short, folder=tmp_path)
    other = masked()
    with torch.no_grad():
        other[8].weight.add_(1.0)
    with pytest.raises(RunFolderError, match="other weights"):
        train_(other, loader(64), recipe=short, folder=tmp_path)


def test_the_best_epoch_only_with_validation():
    recipe = Recipe(epochs=4, learning_rate=3.0, schedule="constant", momentum=0.0)
    model = build()
    history = train_(model, loader(), recipe=recipe, validation=TEST)
    values = [row.validation for row in history.rows]
    assert history.chosen == 1 + values.index(max(values))
    assert accuracy(model, TEST).fraction == max(values)
    assert history.chosen != 4  # this rate is far too high: otherwise the test shows nothing
    last, plain = build(), build()
    assert train_(last, loader(), recipe=recipe, validation=TEST, best=False).chosen == 4
    train_(plain, loader(), recipe=recipe)
    assert same(last, plain)


def learned():
    """A start that is worth going back to."""
    model = build()
    train_(model, loader(), recipe=Recipe(epochs=6, learning_rate=0.05))
    return model


FAR = Recipe(epochs=1, learning_rate=0.5, schedule="constant")
"""Too high a rate: the end is no better than the start."""


def test_the_result_is_drawn_back_to_a_good_start():
    start = learned()
    there, back = copy.deepcopy(start), copy.deepcopy(start)
    train_(there, loader(), recipe=FAR)
    train_(back, loader(), recipe=replace(FAR, start_share=0.75))
    ends = (start.state_dict(), there.state_dict())
    for name, found in back.state_dict().items():
        old, new = (end[name] for end in ends)
        if found.is_floating_point():
            torch.testing.assert_close(found, 0.75 * old + 0.25 * new)
            assert not torch.equal(found, new)
        else:
            assert torch.equal(found, new)  # batches are counted, not averaged


def test_a_poor_start_is_not_gone_back_to():
    there, back = build(), build()
    recipe = Recipe(epochs=2, learning_rate=0.05)
    train_(there, loader(), recipe=recipe)
    train_(back, loader(), recipe=replace(recipe, start_share=0.25))
    assert same(there, back)


@pytest.mark.parametrize("start", [build, learned])
def test_validation_is_that_of_the_result(start):
    recipe = replace(FAR, epochs=2, start_share=0.75)
    best, last = start(), start()
    history = train_(best, loader(), recipe=recipe, validation=TEST)
    assert accuracy(best, TEST).fraction == history.rows[history.chosen - 1].validation
    plain = train_(last, loader(), recipe=recipe, validation=TEST, best=False)
    assert accuracy(last, TEST).fraction == plain.rows[-1].validation
    assert plain.rows == tuple(
        replace(b, seconds=a.seconds) for a, b in zip(plain.rows, history.rows, strict=True)
    )


def test_a_resumed_run_goes_back_to_the_same_start(tmp_path):
    recipe = replace(FAR, epochs=2, start_share=0.75)
    whole, parts, again = learned(), learned(), learned()
    train_(whole, loader(), recipe=recipe)

    def interrupt(row):
        if row.epoch == 2 and row.batch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_(parts, loader(), recipe=recipe, folder=tmp_path, progress=interrupt)
    train_(again, loader(), recipe=recipe, folder=tmp_path)
    assert same(whole, again)
    finished = learned()
    assert train_(finished, loader(), recipe=recipe, folder=tmp_path).resumed == 2
    assert same(whole, finished)


def test_two_layers_with_one_weight_are_drawn_back_once():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    start = {name: tensor + 2 for name, tensor in floating(model).items()}
    before = model[0].weight.detach().clone()
    drawn_back_(model, start, 0.5)
    torch.testing.assert_close(model[1].weight.detach(), before + 1)


def test_a_function_of_the_epoch_is_asked_every_epoch():
    asked = []

    def data(epoch):
        asked.append(epoch)
        return ((X[i : i + 64], Y[i : i + 64]) for i in range(0, 128, 64))

    history = train_(build(), data, recipe=RECIPE)
    assert asked == [0, 1, 2]
    assert len(history.rows) == 3


def test_distillation_pulls_towards_the_teacher():
    teacher = build()
    train_(teacher, loader(), recipe=RECIPE)
    teacher.train()
    student, alone = build(), build()
    nonsense = [(X[:640], (Y[:640] + 1) % 10)]  # only the teacher knows better
    recipe = Recipe(epochs=20, learning_rate=0.05, distillation=1.0, temperature=2.0)
    before = copy.deepcopy(teacher.state_dict())
    train_(student, nonsense, recipe=recipe, teacher=teacher)
    train_(alone, nonsense, recipe=Recipe(epochs=20, learning_rate=0.05))
    assert accuracy(student, TEST).fraction > 0.6 > 0.2 > accuracy(alone, TEST).fraction
    assert teacher.training
    assert all(torch.equal(before[k], v) for k, v in teacher.state_dict().items())


def test_the_callers_world_is_left_as_it_was():
    model = build().eval()
    model[1].train()
    modes = [module.training for module in model.modules()]
    environment, shared = dict(os.environ), dict(AcceleratorState._shared_state)
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    expected = torch.rand(1), random.random(), np.random.rand()  # noqa: NPY002
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    train_(model, loader(128), recipe=Recipe(epochs=1, learning_rate=0.01))
    found = torch.rand(1), random.random(), np.random.rand()  # noqa: NPY002
    assert found == expected
    assert [module.training for module in model.modules()] == modes
    assert dict(os.environ) == environment
    assert AcceleratorState._shared_state == shared == {}
    assert set(vars(model)) == set(vars(build()))


def test_mixed_precision_trains_and_leaves_no_wrapper():
    model = masked()
    forward = model.forward
    options = {"mixed_precision": "bf16", "cpu": True}
    history = train_(
        model, loader(256), recipe=Recipe(epochs=2, learning_rate=0.05), accelerator=options
    )
    assert history.rows[1].loss < history.rows[0].loss
    assert model.forward == forward
    assert model[3].weight.dtype == torch.float32
    with pytest.raises(InputError, match="fp7"):
        train_(model, loader(64), recipe=RECIPE, accelerator={"mixed_precision": "fp7"})
    assert AcceleratorState._shared_state == {}


def test_progress_rows():
    rows = []
    train_(build(), loader(128), recipe=RECIPE, validation=TEST, progress=rows.append)
    assert [(r.epoch, r.batch, r.batches) for r in rows[:3]] == [(1, 1, 2), (1, 2, 2), (1, 2, 2)]
    assert [r.validation is None for r in rows[:3]] == [True, True, False]
    assert all(r.seconds_left >= 0 for r in rows)
    assert rows[-1].seconds_left == 0.0


class Broken(nn.Module):
    def __init__(self, after):
        super().__init__()
        self.left = after

    def forward(self, x):
        self.left -= 1
        if self.left < 0:
            raise ValueError("broken")
        return x


def test_a_network_that_raises_leaves_modes_and_no_hooks():
    model = nn.Sequential(*build(), Broken(3)).eval()
    with pytest.raises(ModelError, match="broken"):
        train_(model, loader(), recipe=RECIPE)
    assert not any(module.training for module in model.modules())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert AcceleratorState._shared_state == {}


def test_bad_input_is_refused():
    good = [(X[:64], Y[:64])]
    recipe = Recipe(epochs=2, learning_rate=0.1)
    with pytest.raises(ModelError, match=r"nan in epoch 1, batch 1.*learning rate"):
        train_(build(), [(X[:64] * float("nan"), Y[:64])], recipe=recipe)
    with pytest.raises(InputError, match="no batch"):
        train_(build(), [], recipe=recipe)
    with pytest.raises(InputError, match="only once"):
        train_(build(), iter(good), recipe=recipe)
    with pytest.raises(InputError, match="validation data"):
        train_(build(), good, validation=iter(good), recipe=recipe)
    with pytest.raises(InputError, match="labels"):
        train_(build(), [X[:64]], recipe=recipe)
    with pytest.raises(InputError, match="out of range"):
        train_(build(), [(X[:64], Y[:64] + 5)], recipe=recipe)
    with pytest.raises(InputError, match="teacher="):
        train_(build(), good, recipe=Recipe(epochs=1, learning_rate=0.1, distillation=0.5))
    with pytest.raises(InputError, match="distillation"):
        train_(build(), good, recipe=recipe, teacher=build())
    with pytest.raises(InputError, match="gradients"):
        train_(build().requires_grad_(False), good, recipe=recipe)
    with pytest.raises(InputError, match="no images"):
        train_(build(), good, recipe=recipe, validation=[])


def test_channels_last_is_the_same_training_and_leaves_plain_weights():
    plain, other = build(), build()
    for model, recipe in ((plain, RECIPE), (other, replace(RECIPE, channels_last=True))):
        model[6] = nn.Identity()  # dropout draws in the order of the memory
        train_(model, loader(seed=1), recipe=replace(recipe, epochs=1), seed=3)
    assert all(p.is_contiguous() for p in other.parameters())
    for (name, one), two in zip(
        plain.state_dict().items(), other.state_dict().values(), strict=True
    ):
        assert torch.allclose(one, two, rtol=1e-3, atol=1e-4), name


def test_channels_last_is_how_things_lie_while_training():
    def forward(model, batch):
        seen.append((inside(batch[0]), inside(model[3].weight)))
        return model(batch[0])

    def inside(tensor):
        return tensor.is_contiguous(memory_format=torch.channels_last)

    batches = [(X[:64].repeat(1, 8, 1, 1), Y[:64])]  # one channel lies the same in both ways
    for asked in (False, True):
        seen = []
        model = build()
        model[0] = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        recipe = Recipe(epochs=1, learning_rate=0.01, channels_last=asked)
        train_(model, batches, recipe=recipe, forward=forward)
        assert seen == [(asked, asked)]
        assert not inside(model[3].weight)


def test_an_error_leaves_plain_weights():
    model = build()
    recipe = Recipe(epochs=1, learning_rate=0.05, channels_last=True)
    with pytest.raises(InputError):
        train_(model, [X[:8]], recipe=recipe)  # no labels
    assert all(p.is_contiguous() for p in model.parameters())
