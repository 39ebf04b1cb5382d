"""Weights files: what fits is loaded, what does not is named, no pickle is opened."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from snacs.errors import InputError
from snacs.zoo.entry import Normalisation, seeded
from snacs.zoo.networks import CIFAR10, IMAGENET, NETWORKS, SmallConvNet
from snacs.zoo.weights import load_weights_, metadata_of, normalisation_of, save_weights


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "net.safetensors"
    save_weights(seeded(SmallConvNet, 1), path, normalisation=CIFAR10, metadata={"seed": "1"})
    return path


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(
        torch.equal(a, b)
        for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_what_was_saved_comes_back(saved: Path) -> None:
    model = seeded(SmallConvNet, 2)
    pointers = [p.data_ptr() for p in model.parameters()]
    load_weights_(model, saved)
    assert same(model, seeded(SmallConvNet, 1))
    assert [p.data_ptr() for p in model.parameters()] == pointers
    assert metadata_of(saved)["seed"] == "1"
    assert normalisation_of(saved, NETWORKS["resnet56"]) == CIFAR10


def test_half_precision_is_widened(tmp_path: Path) -> None:
    model = seeded(SmallConvNet, 1)
    path = tmp_path / "half.safetensors"
    state = {k: v.half() if v.ndim > 1 else v for k, v in model.state_dict().items()}
    save_file({k: v.contiguous() for k, v in state.items()}, path)
    other = seeded(SmallConvNet, 2)
    load_weights_(other, path)
    assert {p.dtype for p in other.parameters()} == {torch.float32}
    weight = other.state_dict()["classifier.weight"]
    assert torch.equal(weight, model.state_dict()["classifier.weight"].half().float())


def test_normalisation_falls_back_on_the_zoo_and_then_on_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bare.safetensors"
    save_weights(seeded(SmallConvNet, 1), path)
    assert normalisation_of(path, NETWORKS["resnet56"]) == IMAGENET
    assert normalisation_of(None, NETWORKS["vgg16"]) == CIFAR10
    assert normalisation_of(path) is None


@pytest.mark.parametrize("text", ["{", '{"mean": [1]}', '{"mean": [0], "std": [0]}'])
def test_foreign_normalisation_in_the_metadata_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.safetensors"
    save_file({"a": torch.zeros(1)}, path, metadata={"normalisation": text})
    with pytest.raises(InputError, match=r"odd\.safetensors"):
        normalisation_of(path)


def test_a_data_parallel_prefix_is_taken_off(tmp_path: Path) -> None:
    path = tmp_path / "parallel.safetensors"
    save_weights(nn.ModuleDict({"module": seeded(SmallConvNet, 1)}), path)
    model = seeded(SmallConvNet, 2)
    load_weights_(model, path)
    assert same(model, seeded(SmallConvNet, 1))


def test_tied_weights_can_be_saved_and_loaded(tmp_path: Path) -> None:
    def tied() -> nn.Module:
        layer = nn.Linear(4, 4)
        return nn.Sequential(layer, nn.ReLU(), layer)

    path = tmp_path / "tied.safetensors"
    model, other = seeded(tied, 1), seeded(tied, 2)
    save_weights(model, path)
    load_weights_(other, path)
    assert same(model, other)


def test_only_the_batchnorm_counter_may_be_missing(saved: Path) -> None:
    state = load_file(saved)
    rest = {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}
    save_file(rest, saved)
    model = seeded(SmallConvNet, 2)
    load_weights_(model, saved)
    assert len(rest) < len(state)
    assert torch.equal(model.state_dict()["classifier.bias"], state["classifier.bias"])


def test_every_misfit_is_named_and_nothing_is_loaded(saved: Path) -> None:
    state = load_file(saved)
    del state["features.0.weight"]
    state["extra.weight"] = torch.zeros(1)
    state["classifier.weight"] = torch.zeros(7, 64)
    save_file(state, saved)
    model = seeded(SmallConvNet, 2)
    with pytest.raises(InputError) as caught:
        load_weights_(model, saved)
    message = str(caught.value)
    assert "missing in the file: features.0.weight" in message
    assert "unknown to the network: extra.weight" in message
    assert "classifier.weight (file (7, 64), network (10, 64))" in message
    assert same(model, seeded(SmallConvNet, 2))


def test_weights_of_quite_another_network_are_summed_up(saved: Path) -> None:
    # 332 keys, 55 of them counters that may be missing, 5 shown.
    with pytest.raises(InputError, match="and 272 more"):
        load_weights_(NETWORKS["resnet56"].build(), saved)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinite_weights_are_named(saved: Path, value: float) -> None:
    state = load_file(saved)
    state["features.4.weight"][1, 2, 0, 0] = value
    save_file(state, saved)
    model = seeded(SmallConvNet, 2)
    with pytest.raises(InputError, match=r"NaN or infinite values in features\.4\.weight"):
        load_weights_(model, saved)
    assert same(model, seeded(SmallConvNet, 2))


class Harmful:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (open, (str(self.path), "w"))  # type: ignore[return-value]


@pytest.mark.parametrize("how", ["torch.save", "pickle"])
def test_pickles_are_refused_and_never_run(tmp_path: Path, how: str) -> None:
    # Even with the right suffix: the content decides.
    path, trace = tmp_path / "w.safetensors", tmp_path / "trace"
    if how == "torch.save":
        torch.save({"a": Harmful(trace)}, path)
    else:
        path.write_bytes(pickle.dumps(Harmful(trace)))
    with pytest.raises(InputError, match="weights_only=True"):
        load_weights_(SmallConvNet(), path)
    assert not trace.exists()


def test_the_recipe_in_the_refusal_works(tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    torch.save({"state_dict": seeded(SmallConvNet, 1).state_dict()}, path)
    with pytest.raises(InputError) as caught:
        load_weights_(SmallConvNet(), path)
    recipe = str(caught.value).split("\n", 1)[1]
    exec("\n".join(line.strip() for line in recipe.splitlines()), {})
    model = SmallConvNet()
    load_weights_(model, tmp_path / "w.safetensors")
    assert same(model, seeded(SmallConvNet, 1))


def test_truncated_foreign_missing_and_folder(saved: Path, tmp_path: Path) -> None:
    model = SmallConvNet()
    content = saved.read_bytes()
    for length in (0, 5, 100, len(content) - 1):
        saved.write_bytes(content[:length])
        with pytest.raises(InputError, match="not a complete safetensors file"):
            load_weights_(model, saved)
        with pytest.raises(InputError, match=r"net\.safetensors"):
            normalisation_of(saved)
    (tmp_path / "text.safetensors").write_text("hello, this is no tensor")
    with pytest.raises(InputError, match="not a complete safetensors file"):
        load_weights_(model, tmp_path / "text.safetensors")
    with pytest.raises(InputError, match="no weights file"):
        load_weights_(model, tmp_path / "none.safetensors")
    with pytest.raises(InputError, match="is a folder"):
        load_weights_(model, tmp_path)


def test_metadata_must_be_text_and_leaves_normalisation_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Got int for 'seed'"):
        save_weights(SmallConvNet(), tmp_path / "w", metadata={"seed": 1})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="normalisation="):
        save_weights(SmallConvNet(), tmp_path / "w", metadata={"normalisation": "{}"})
    assert not (tmp_path / "w").exists()


def test_the_metadata_is_plain_json_that_others_can_read(saved: Path) -> None:
    expected = {"mean": [0.4914, 0.4822, 0.4465], "std": [0.2470, 0.2435, 0.2616]}
    assert json.loads(metadata_of(saved)["normalisation"]) == expected
    assert Normalisation.from_dict(expected, origin="test") == CIFAR10


def test_a_header_length_that_starts_like_a_pickle_is_still_safetensors(tmp_path):
    """The first byte of the file is the low byte of its header's length: any value may occur."""
    model = torch.nn.Linear(2, 2)
    path = tmp_path / "w.safetensors"
    for length in range(300):
        save_weights(model, path, metadata={"note": "x" * length})
        if path.read_bytes()[0] == 0x80:
            break
    assert path.read_bytes()[0] == 0x80
    load_weights_(model, path)
    assert metadata_of(path)["note"] == "x" * length


def test_the_same_weights_are_the_same_file(tmp_path):
    """safetensors writes metadata in the order of a hash map that differs from call to call."""
    notes = {f"note{i}": "x" for i in range(8)}
    contents = set()
    for index in range(6):
        path = tmp_path / f"{index}.safetensors"
        save_weights(torch.nn.Linear(2, 3, bias=False).requires_grad_(False), path, metadata=notes)
        contents.add(path.read_bytes()[: 8 + int.from_bytes(path.read_bytes()[:8], "little")])
        assert metadata_of(path) == notes
    assert len(contents) == 1
