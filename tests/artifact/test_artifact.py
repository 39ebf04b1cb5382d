"""What is saved comes back bit for bit, in few bytes, without the code that made it."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from savednets import Branching, Everything, images, outputs
from torch import Tensor, nn

import snacs
from snacs.artifact import inspect, load, save, save_state_dict
from snacs.errors import InputError
from snacs.network.compact import compact
from snacs.network.layers import find_structure
from snacs.network.masking import apply_, bake_
from snacs.zoo.networks import NETWORKS

X = images(3, 8, 8)


def mask(model: nn.Module, x: Tensor, share: float, seed: int = 0) -> dict[str, np.ndarray]:
    structure = find_structure(model, x)
    random = np.random.default_rng(seed)
    masks = {
        layer.name: random.random((layer.c_out, layer.c_in)) > share for layer in structure.prunable
    }
    for keep in masks.values():
        keep[0, 0] = True
    apply_(model, masks, structure=structure)
    return masks


def test_masked_network_comes_back_bit_for_bit(tmp_path: Path) -> None:
    model = Everything()
    masks = mask(model, X, 0.6)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    saved = save(model, tmp_path / "net.snacs", example=X)
    assert saved.standalone
    assert saved.notes == ()
    assert saved.bytes == (tmp_path / "net.snacs").stat().st_size
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    found = load(saved.path)
    assert torch.equal(outputs(found, X), outputs(model, X))
    info = inspect(saved.path)
    assert all(np.array_equal(info.masks[name], masks[name]) for name in masks)
    baked = copy.deepcopy(model)
    bake_(baked)
    state = found.state_dict()
    # The buffer that is not persistent and the plain tensor are kept as buffers.
    assert set(baked.state_dict()) <= set(state)
    assert all(torch.equal(state[key], value) for key, value in baked.state_dict().items())
    assert dict(found.named_parameters()).keys() == dict(baked.named_parameters()).keys()
    assert info.shapes["stem.0.weight"] == (8, 3, 3, 3)


def test_a_loaded_network_can_be_used_like_any_other(tmp_path: Path) -> None:
    model = Everything()
    save(model, tmp_path / "net.snacs")
    found = load(tmp_path / "net.snacs")
    assert not found.training
    again = copy.deepcopy(found)
    assert torch.equal(outputs(again, X), outputs(model, X))
    # It trains: in train mode dropout and BatchNorm act again.
    again.train()
    again(X).sum().backward()
    assert all(p.grad is not None for p in again.parameters())
    with torch.no_grad():
        again.fc.bias += 1
    assert not torch.equal(outputs(again, X), outputs(found, X))
    # It can be masked, compacted and saved again.
    mask(found, X, 0.5)
    small = compact(found, X)
    second = save(small, tmp_path / "small.snacs", example=X)
    assert second.standalone
    torch.testing.assert_close(outputs(load(second.path), X), outputs(found, X))
    # One image, and more than before: shapes were not frozen.
    assert outputs(load(second.path), X[:1]).shape == (1, 5)


def test_saving_a_loaded_network_writes_the_same_file(tmp_path: Path) -> None:
    model = Everything()
    mask(model, X, 0.6)
    bake_(model)
    save(model, tmp_path / "a.snacs")
    first = save(load(tmp_path / "a.snacs"), tmp_path / "b.snacs")
    second = save(load(first.path), tmp_path / "c.snacs")
    assert first.path.read_bytes() == second.path.read_bytes()


@pytest.mark.parametrize("name", ["small-conv", "small-resnet", "resnet56"])
def test_networks_of_the_zoo_compacted(name: str, tmp_path: Path) -> None:
    entry = NETWORKS[name]
    x = images(entry.shape[0], 8, 8, count=2)
    model = entry.build()
    structure = find_structure(model, x)
    masks = {
        layer.name: np.ones((layer.c_out, layer.c_in), dtype=bool) for layer in structure.prunable
    }
    for keep in masks.values():
        keep[1::3] = False
    apply_(model, masks, structure=structure)
    small = compact(model, x)
    saved = save(small, tmp_path / "net.snacs", example=x)
    assert saved.standalone
    assert torch.equal(outputs(load(saved.path), x), outputs(small, x))


def test_a_fresh_process_without_the_code(tmp_path: Path) -> None:
    model = Everything()
    mask(model, X, 0.6)
    save(model, tmp_path / "net.snacs")
    torch.save({"x": X, "y": outputs(model, X)}, tmp_path / "pair.pt")
    code = (
        "import sys, torch, snacs\n"
        "net = snacs.load('net.snacs')\n"
        "pair = torch.load('pair.pt', weights_only=True)\n"
        "with torch.no_grad(): same = torch.equal(net(pair['x']), pair['y'])\n"
        "print(same, 'savednets' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_size_of_vgg16_at_96_percent(tmp_path: Path) -> None:
    model = NETWORKS["vgg16"].build()
    x = images(3, 32, 32, count=1)
    structure = find_structure(model, x)
    random = np.random.default_rng(0)
    masks = {
        layer.name: random.random((layer.c_out, layer.c_in)) > 0.9605
        for layer in structure.prunable
    }
    apply_(model, masks, structure=structure)
    saved = save(model, tmp_path / "vgg16.snacs")
    kept = sum(
        int(masks[layer.name].sum()) * layer.kernel if layer.name in masks else layer.weights
        for layer in structure
    )
    assert kept / structure.weights == pytest.approx(0.04, abs=0.001)
    possible = sum(layer.connections for layer in structure)
    assert saved.bytes <= 1.15 * (4 * kept + possible / 8)
    assert torch.equal(outputs(load(saved.path), x), outputs(model, x))


def test_what_cannot_be_traced_says_so_and_needs_an_instance(tmp_path: Path) -> None:
    model = Branching()
    with pytest.warns(UserWarning, match=r"could not be stored.*cannot trace"):
        saved = save(model, tmp_path / "net.snacs")
    assert not saved.standalone
    assert "snacs.load(path, model=" in saved.notes[0]
    with pytest.raises(InputError, match="holds no architecture"):
        load(saved.path)
    found = load(saved.path, model=Branching())
    assert isinstance(found, Branching)
    assert torch.equal(outputs(found, X), outputs(model, X))


def test_an_instance_takes_the_sizes_of_the_file(tmp_path: Path) -> None:
    model = Branching()
    with torch.no_grad():
        model.conv.weight[1] = model.conv.bias[1] = 0
        model.norm.weight[1] = model.norm.bias[1] = 0
    small = compact(model, X, fold_batchnorm=True)
    with pytest.warns(UserWarning, match="could not be stored"):
        saved = save(small, tmp_path / "net.snacs")
    found = load(saved.path, model=Branching())
    assert found.conv.out_channels == found.fc.in_features == 3
    assert isinstance(found.norm, nn.Identity)
    assert torch.equal(outputs(found, X), outputs(small, X))


def test_a_foreign_instance_is_refused(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(Branching(), tmp_path / "net.snacs")
    with pytest.raises(InputError, match="no module 'conv'"):
        load(tmp_path / "net.snacs", model=nn.Sequential(nn.Linear(2, 2)))
    wider = Branching()
    wider.extra = nn.Linear(2, 2)
    with pytest.raises(InputError, match=r"missing in the file: extra\.bias, extra\.weight"):
        load(tmp_path / "net.snacs", model=wider)
    other = Branching()
    other.norm = nn.GroupNorm(1, 4)
    with pytest.raises(InputError, match="GroupNorm in the network given as model="):
        load(tmp_path / "net.snacs", model=other)


def test_a_lying_trace_is_found_by_the_example(tmp_path: Path) -> None:
    class Liar(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x) if type(x) is Tensor else self.fc(x) * 2

    with pytest.warns(UserWarning, match="something else when torch.fx traces it"):
        saved = save(Liar(), tmp_path / "net.snacs", example=torch.randn(3, 2))
    assert not saved.standalone


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    model[2].weight = model[0].weight
    alone = save(nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)), tmp_path / "b.snacs")
    saved = save(model, tmp_path / "a.snacs")
    assert saved.bytes < alone.bytes
    found = load(saved.path)
    assert found.get_submodule("0").weight is found.get_submodule("2").weight
    assert torch.equal(outputs(found, X[:, 0, 0, :6]), outputs(model, X[:, 0, 0, :6]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype: torch.dtype, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(dtype)
    with torch.no_grad():
        model[0].weight[:, ::2] = 0
    save(model, tmp_path / "net.snacs")
    found = load(tmp_path / "net.snacs")
    assert found.get_submodule("0").weight.dtype == dtype
    x = images(8).to(dtype)
    assert torch.equal(outputs(found, x), outputs(model, x))


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(2, 3)

    def forward(self, a: Tensor, b: Tensor, factor: float = 2.0) -> dict[str, Tensor]:
        return {"sum": self.left(a) + factor * self.right(b), "both": (a, b)}


def test_several_inputs_defaults_and_nested_outputs(tmp_path: Path) -> None:
    model = TwoInputs()
    save(model, tmp_path / "net.snacs")
    found = load(tmp_path / "net.snacs")
    a, b = images(4), images(2)
    torch.testing.assert_close(found(a, b=b)["sum"], model(a, b)["sum"])
    torch.testing.assert_close(found(a, b, 3.0)["sum"], model(a, b, 3.0)["sum"])
    assert torch.equal(found(a, b)["both"][1], b)
    with pytest.raises(InputError, match="needs the input 'b'"):
        found(a)
    with pytest.raises(InputError, match="takes 3 input"):
        found(a, b, c=1)


def test_provenance_is_given_back(tmp_path: Path) -> None:
    digits = torch.rand(64, 1, 8, 8), torch.arange(64) % 10
    model = NETWORKS["small-conv"].build()
    made = snacs.plan(model, [digits], target=0.5, score="l2", allocation="uniform")
    snacs.apply_(model, made)
    saved = snacs.save(
        model,
        tmp_path / "net.snacs",
        plan=made,
        accuracy=0.9,
        normalisation={"mean": [0.5], "std": [0.25]},
        provenance={"recipe": "short"},
    )
    facts = inspect(saved.path).provenance
    assert facts["target"] == 0.5
    assert facts["preset"] == "custom"
    assert facts["config"]["score"] == "l2"
    assert facts["pruned"] == pytest.approx(made.pruned)
    assert len(facts["scores_sha256"]) == 64
    assert (facts["accuracy"], facts["recipe"]) == (0.9, "short")
    assert facts["normalisation"] == {"mean": [0.5], "std": [0.25]}
    assert facts["versions"]["snacs"] == snacs.__version__


@pytest.mark.parametrize("value", [{"a": torch.zeros(2)}, {"a": math.nan}, {"a": object()}])
def test_provenance_must_be_plain(value: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="plain JSON values"):
        save(nn.Linear(2, 2), tmp_path / "net.snacs", provenance=value)
    assert not (tmp_path / "net.snacs").exists()


def test_a_plain_state_dict_needs_nothing_of_ours(tmp_path: Path) -> None:
    model = Everything()
    mask(model, X, 0.6)
    save_state_dict(model, tmp_path / "weights.safetensors")
    plain = Everything()
    plain.load_state_dict(load_file(tmp_path / "weights.safetensors"))
    plain.shift = model.shift
    assert torch.equal(outputs(plain, X), outputs(model, X))


def test_foreign_parametrizations_and_hooks(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    nn.utils.parametrizations.weight_norm(model[0])
    with pytest.raises(InputError, match="remove_parametrizations"):
        save(model, tmp_path / "net.snacs")
    hooked = nn.Sequential(nn.Linear(3, 3))
    hooked[0].register_forward_hook(lambda module, args, output: output * 2)
    with pytest.warns(UserWarning, match="hooks on '0'"):
        assert not save(hooked, tmp_path / "net.snacs").standalone


def test_loading_leaves_the_random_stream_alone(tmp_path: Path) -> None:
    save(Everything(), tmp_path / "net.snacs")
    before = torch.get_rng_state()
    load(tmp_path / "net.snacs")
    assert torch.equal(torch.get_rng_state(), before)
