"""Evidence: windows that reproduce each layer's output, arrays on disk, hooks removed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from toynets import Grouped, Net, Plain, Residual, conv, hooks_on, images, randomise_norms

from snacs.config import Config
from snacs.errors import InputError, ModelError, RunFolderError
from snacs.network import windows
from snacs.network.activations import INDEX, draw_places, gather_evidence, load_evidence
from snacs.network.calibration import Calibration
from snacs.network.layers import find_structure
from snacs.values import Evidence, Structure

# Float32 sums of at most a few hundred products of numbers near 1.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def calibration(x: Tensor, batch: int = 4, classes: int = 3) -> Calibration:
    labels = np.arange(len(x)) % classes
    parts = [
        (x[i : i + batch], torch.as_tensor(labels[i : i + batch])) for i in range(0, len(x), batch)
    ]
    return Calibration(batches=tuple(parts), labels=labels, classes=classes)


def config(samples: str = "positions", positions: int = 3) -> Config:
    return Config(samples=samples, positions=positions)


def watch(
    model: nn.Module, x: Tensor, folder: Path, *, samples: str = "positions", batch: int = 4
) -> tuple[Structure, dict[str, Evidence]]:
    structure = find_structure(model, x, keep_first=False, keep_last=False)
    found = gather_evidence(
        model,
        structure,
        calibration(x, batch),
        config=config(samples),
        folder=folder,
        seed=5,
    )
    return structure, found


def apply_weight(evidence: Evidence, seen: np.ndarray) -> np.ndarray:
    """weight · windows + bias, group by group."""
    layer = evidence.layer
    channel = layer.channel_of()
    out = np.stack(
        [
            np.einsum("njk,jk->n", seen[:, channel[i]], evidence.weight[i])
            for i in range(layer.c_out)
        ],
        axis=1,
    )
    return out if evidence.bias is None else out + evidence.bias


KINDS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "padded": (conv(3, 5), (3, 6, 7)),
    "strided": (nn.Conv2d(3, 5, 3, stride=(2, 1), padding=(0, 2)), (3, 7, 6)),
    "dilated": (nn.Conv2d(3, 5, 3, dilation=2, padding=2, bias=False), (3, 7, 7)),
    "same": (nn.Conv2d(3, 5, (4, 2), padding="same", dilation=(1, 3)), (3, 7, 7)),
    "valid": (nn.Conv2d(3, 5, (1, 3), padding="valid"), (3, 5, 5)),
    "reflect": (nn.Conv2d(3, 5, 3, padding=2, padding_mode="reflect"), (3, 6, 6)),
    "replicate": (nn.Conv2d(3, 5, 3, padding=(1, 2), padding_mode="replicate"), (3, 6, 6)),
    "circular": (nn.Conv2d(3, 5, 3, padding="same", padding_mode="circular"), (3, 6, 6)),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), (4, 6, 6)),
    "conv1d": (nn.Conv1d(3, 5, 3, stride=2, padding=1), (3, 9)),
    "conv3d": (nn.Conv3d(2, 4, (1, 2, 3), padding=1), (2, 4, 4, 4)),
    "linear": (nn.Linear(6, 5), (6,)),
    "tokens": (nn.Linear(6, 5), (7, 6)),
    "grid": (nn.Linear(6, 5), (3, 4, 6)),
}


# torch warns of a copy that uneven "same" padding costs it.
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("samples", ["positions", "pooled"])
def test_windows_reproduce_the_output(name: str, samples: str, tmp_path: Path) -> None:
    module, shape = KINDS[name]
    x = images(*shape, count=10)
    net = Net(lambda net, x: net.layer(x), layer=module)
    _, found = watch(net, x, tmp_path, samples=samples)
    evidence = found["layer"]
    np.testing.assert_allclose(apply_weight(evidence, evidence.windows), evidence.outputs, **CLOSE)
    with torch.no_grad():
        out = module(x)
    if name in ("tokens", "grid", "linear"):
        mean = out.reshape(10, -1, 5).mean(1)
    else:
        mean = out.flatten(2).mean(2)
    np.testing.assert_allclose(apply_weight(evidence, evidence.window_means), mean, **CLOSE)
    positions = out.numel() // len(x) // evidence.layer.c_out
    expected = len(x) * (min(3, positions) if samples == "positions" else 1)
    assert len(evidence.windows) == len(evidence.inputs) == len(evidence.outputs) == expected
    assert evidence.windows.dtype == evidence.outputs.dtype == np.float32


def test_pooled_samples_are_spatial_means(tmp_path: Path) -> None:
    net, x = Plain().eval(), images(3, 8, 8)
    _, found = watch(net, x, tmp_path, samples="pooled")
    evidence = found["second"]
    with torch.no_grad():
        hidden = functional.relu(net.first(x))
        out = net.second(hidden)
    np.testing.assert_allclose(evidence.inputs, hidden.mean((2, 3)), **CLOSE)
    np.testing.assert_allclose(evidence.outputs, out.mean((2, 3)), **CLOSE)
    assert evidence.windows is evidence.window_means


def test_inputs_are_the_centre_tap_and_rms_is_over_all_positions(tmp_path: Path) -> None:
    net, x = Plain().eval(), images(3, 8, 8)
    _, found = watch(net, x, tmp_path)
    evidence = found["second"]
    np.testing.assert_array_equal(evidence.inputs, evidence.windows[:, :, 4])
    with torch.no_grad():
        hidden = functional.relu(net.first(x))
    rms = hidden.square().mean((0, 2, 3)).sqrt()
    np.testing.assert_allclose(evidence.input_rms, rms, rtol=1e-5)


def test_behind_a_flatten_a_channel_is_one_input(tmp_path: Path) -> None:
    net, x = Plain().eval(), images(3, 8, 8)
    _, found = watch(net, x, tmp_path)
    evidence = found["head"]
    assert evidence.windows.shape == (6, 6, 16)
    np.testing.assert_allclose(evidence.inputs, evidence.windows.mean(2), **CLOSE)
    with torch.no_grad():
        np.testing.assert_allclose(evidence.outputs, net(x), **CLOSE)
    np.testing.assert_allclose(apply_weight(evidence, evidence.windows), evidence.outputs, **CLOSE)


@pytest.mark.parametrize("kind", [Residual, Grouped])
def test_whole_networks_in_one_pass(kind: type[Plain], tmp_path: Path) -> None:
    net = randomise_norms(kind()).eval()
    _, found = watch(net, images(*kind.image), tmp_path)
    assert len(found) >= 4
    for evidence in found.values():
        got = apply_weight(evidence, evidence.windows)
        np.testing.assert_allclose(got, evidence.outputs, **CLOSE)
        assert list(evidence.labels) == [0, 1, 2, 0, 1, 2]


def test_a_module_called_twice_pools_its_calls(tmp_path: Path) -> None:
    net = Net(
        lambda net, x: net.c(net.b(functional.relu(net.b(net.a(x))))),
        a=conv(3, 4),
        b=conv(4, 4),
        c=conv(4, 2),
    ).eval()
    x = images(3, 5, 5)
    _, found = watch(net, x, tmp_path)
    evidence = found["b"]
    assert len(evidence.window_means) == 12
    assert len(evidence.windows) == 12 * 3
    assert list(evidence.labels) == [0, 1, 2, 0, 1, 2] * 2
    with torch.no_grad():
        first = net.b(net.a(x))
        means = torch.cat([first, net.b(functional.relu(first))]).mean((2, 3))
    np.testing.assert_allclose(apply_weight(evidence, evidence.window_means), means, **CLOSE)


def test_batch_size_does_not_change_the_samples(tmp_path: Path) -> None:
    net = Net(lambda net, x: net.b(net.b(net.a(x))), a=conv(3, 4), b=conv(4, 4)).eval()
    x = images(3, 5, 5, count=9)
    _, one = watch(net, x, tmp_path / "one", batch=2)
    _, two = watch(net, x, tmp_path / "two", batch=9)
    for name in one:
        np.testing.assert_allclose(one[name].windows, two[name].windows, **CLOSE)
        np.testing.assert_allclose(one[name].window_means, two[name].window_means, **CLOSE)
        np.testing.assert_array_equal(one[name].labels, two[name].labels)


def test_same_seed_same_bits_and_other_layers_do_not_matter(tmp_path: Path) -> None:
    net, x = Plain(), images(3, 8, 8)
    structure, first = watch(net, x, tmp_path / "1")
    again = gather_evidence(
        net,
        structure,
        calibration(x),
        config=config(),
        folder=tmp_path / "2",
        seed=5,
        layers=["second"],
    )
    other = gather_evidence(
        net, structure, calibration(x), config=config(), folder=tmp_path / "3", seed=6
    )
    assert list(again) == ["second"]
    np.testing.assert_array_equal(again["second"].windows, first["second"].windows)
    assert not np.array_equal(other["second"].windows, first["second"].windows)


def test_rows_folded_into_the_batch_belong_to_their_image(tmp_path: Path) -> None:
    """Frames of a video as a larger batch; the mean over an image's rows is its own."""

    def forward(net: Net, x: Tensor) -> Tensor:
        n, t = x.shape[:2]
        frames = net.b(net.a(x.flatten(0, 1)))
        return net.c(frames.mean((2, 3)).view(n, t, -1).mean(1))

    net = Net(forward, a=conv(3, 4), b=conv(4, 4), c=nn.Linear(4, 3)).eval()
    x = images(5, 3, 6, 6)
    structure, found = watch(net, x, tmp_path)
    assert structure["b"].positions == 5 * 36
    with torch.no_grad():
        means = net.b(net.a(x.flatten(0, 1))).view(6, 5, 4, 36).mean((1, 3))
    evidence = found["b"]
    np.testing.assert_allclose(apply_weight(evidence, evidence.window_means), means, **CLOSE)
    np.testing.assert_allclose(apply_weight(evidence, evidence.windows), evidence.outputs, **CLOSE)


def test_sequence_first_inputs(tmp_path: Path) -> None:
    net = Net(
        lambda net, x: net.b(net.a(x.transpose(0, 1))).mean(0), a=nn.Linear(4, 5), b=nn.Linear(5, 3)
    ).eval()
    x = images(7, 4, count=4)
    _, found = watch(net, x, tmp_path)
    with torch.no_grad():
        means = net(x)
    got = apply_weight(found["b"], found["b"].window_means)
    np.testing.assert_allclose(got, means, **CLOSE)


def test_keyword_inputs_through_forward(tmp_path: Path) -> None:
    net = Net(
        lambda net, *, pixels: {"logits": net.b(input=net.a(input=pixels)).mean((2, 3))},
        a=conv(3, 4),
        b=conv(4, 4),
    )
    batch = {"pixels": images(3, 6, 6), "labels": torch.arange(6) % 2}
    structure = find_structure(net, batch, keep_first=False, keep_last=False)
    one = Calibration((batch,), np.arange(6) % 2, 2)
    found = gather_evidence(net, structure, one, config=config(), folder=tmp_path, seed=0)
    assert len(found["b"].windows) == 18


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_any_floating_type_becomes_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    net = Plain().to(dtype).train()
    _, found = watch(net, images(3, 8, 8), tmp_path)
    evidence = found["second"]
    # bfloat16 has 8 bits of mantissa: sums of 36 products are right to about 1 %.
    tolerance = 1e-4 if dtype == torch.float64 else 3e-2
    got = apply_weight(evidence, evidence.windows)
    np.testing.assert_allclose(got, evidence.outputs, atol=tolerance)
    assert evidence.windows.dtype == np.float32
    assert net.training


def test_train_mode_is_left_as_it_was_and_statistics_untouched(tmp_path: Path) -> None:
    net = randomise_norms(Residual()).train()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    watch(net, images(3, 8, 8), tmp_path)
    assert net.training
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert hooks_on(net) == 0


def test_arrays_are_reopened_without_reading(tmp_path: Path) -> None:
    structure, found = watch(Residual(), images(3, 8, 8), tmp_path)
    again = load_evidence(tmp_path, structure)
    assert list(again) == list(found)
    for name, evidence in again.items():
        assert isinstance(evidence.windows, np.memmap)
        assert not evidence.windows.flags.writeable
        for field in ("weight", "windows", "inputs", "outputs", "window_means", "input_rms"):
            np.testing.assert_array_equal(getattr(evidence, field), getattr(found[name], field))
        assert (evidence.bias is None) == (not structure[name].has_bias)
    assert not list(tmp_path.rglob("*.part"))


def test_odd_layer_names_make_safe_folders(tmp_path: Path) -> None:
    net = nn.Sequential()
    for name, c_in in (("<script>", 3), ("..", 4), ("a/b", 4), ("é" * 300, 4)):
        net.add_module(name.replace(".", "·"), conv(c_in, 4))
    _, found = watch(net, images(3, 5, 5), tmp_path / "run")
    assert len(found) == 4
    folders = sorted(path.name for path in (tmp_path / "run").iterdir() if path.is_dir())
    assert folders[0] == "0000-script"
    assert all(name.isascii() and "/" not in name and len(name) < 80 for name in folders)
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]


def test_progress_counts_images(tmp_path: Path) -> None:
    net, x, seen = Plain(), images(3, 8, 8, count=10), []
    structure = find_structure(net, x)
    gather_evidence(
        net,
        structure,
        calibration(x, 4),
        config=config(),
        folder=tmp_path,
        seed=0,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(4, 10), (8, 10), (10, 10)]


def test_nan_activations_name_the_layer_and_leave_nothing(tmp_path: Path) -> None:
    net, x = Plain(), images(3, 8, 8)
    structure = find_structure(net, x)
    x[5, 0, 0, 0] = float("inf")
    with pytest.raises(InputError, match="'second' has NaN or infinite inputs"):
        gather_evidence(net, structure, calibration(x), config=config(), folder=tmp_path, seed=0)
    assert hooks_on(net) == 0
    assert list(tmp_path.iterdir()) == []


def test_hooks_are_gone_after_a_batch_that_fails(tmp_path: Path) -> None:
    net, x = Plain(), images(3, 8, 8)
    structure = find_structure(net, x)
    broken = Calibration(((x[:3], None), (x[:3, :2], None)), np.arange(6), 6)
    with pytest.raises(ModelError, match=r"float32\(3, 2, 8, 8\)"):
        gather_evidence(net, structure, broken, config=config(), folder=tmp_path, seed=0)
    assert hooks_on(net) == 0
    assert net.training
    assert list(tmp_path.iterdir()) == []


def test_unknown_layer_is_an_error(tmp_path: Path) -> None:
    net, x = Plain(), images(3, 8, 8)
    structure = find_structure(net, x)
    with pytest.raises(InputError, match="no layer 'third'"):
        gather_evidence(
            net,
            structure,
            calibration(x),
            config=config(),
            folder=tmp_path,
            seed=0,
            layers=["third"],
        )


@pytest.mark.parametrize("damage", ["missing", "index", "escape", "short", "foreign"])
def test_damaged_folders_are_refused(damage: str, tmp_path: Path) -> None:
    structure, _ = watch(Plain(), images(3, 8, 8), tmp_path)
    if damage == "missing":
        next(tmp_path.rglob("inputs.npy")).unlink()
    elif damage == "index":
        (tmp_path / INDEX).write_text("{")
    elif damage == "escape":
        (tmp_path / INDEX).write_text(json.dumps({"layers": {"second": "../other"}}))
    elif damage == "short":
        file = next(tmp_path.rglob("outputs.npy"))
        file.write_bytes(file.read_bytes()[:200])
    else:
        structure = find_structure(Residual(), images(3, 8, 8))
    with pytest.raises(RunFolderError, match="Delete the folder"):
        load_evidence(tmp_path, structure)


@settings(deadline=None, max_examples=60)
@given(
    images=st.integers(1, 20),
    positions=st.integers(1, 40),
    count=st.integers(1, 8),
    seed=st.integers(0, 2**32),
)
def test_places_differ_within_an_image_and_do_not_depend_on_batches(
    images: int, positions: int, count: int, seed: int
) -> None:
    whole = draw_places(np.random.default_rng(seed), images, positions, count)
    assert whole.shape == (images, min(count, positions))
    assert whole.min() >= 0
    assert whole.max() < positions
    assert all(len(set(row)) == len(row) for row in whole.tolist())
    stream = np.random.default_rng(seed)
    parts = [draw_places(stream, 1, positions, count) for _ in range(images)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_places_are_equally_likely() -> None:
    places = draw_places(np.random.default_rng(0), 20_000, 5, 3)
    pairs = np.zeros((5, 5))
    np.add.at(pairs, (places[:, 0], places[:, 2]), 1)
    expected = 20_000 / 20
    # Binomial: a standard deviation of about 31; 5 of them for the 20 pairs at once.
    assert np.abs(pairs[~np.eye(5, dtype=bool)] - expected).max() < 155
    assert pairs.diagonal().sum() == 0


def test_rows_that_do_not_divide_into_images_are_refused() -> None:
    net = Plain()
    layer = find_structure(net, images(3, 8, 8))["second"]
    x = images(4, 8, 8, count=5)
    with pytest.raises(InputError, match="'second' was called on 5 rows for 2 images"):
        windows.view_of(net.second, layer, x, net.second(x), 2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_evidence_from_cuda(tmp_path: Path) -> None:
    _, found = watch(Plain().cuda(), images(3, 8, 8), tmp_path)
    evidence = found["second"]
    # TF32 convolutions have 10 bits of mantissa.
    np.testing.assert_allclose(
        apply_weight(evidence, evidence.windows), evidence.outputs, atol=1e-2
    )
