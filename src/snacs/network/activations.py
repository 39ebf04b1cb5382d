"""What each layer sees and answers on the calibration images, as arrays on disk.

All layers are watched in one pass. Rows go to the folder as they come, so memory holds one batch
and never all images; the arrays come back memory-mapped. Samples do not depend on the batch size:
each layer draws its positions from its own generator, in order of the images.
"""

from __future__ import annotations

import re
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snacs.config import Config
from snacs.errors import InputError, RunFolderError
from snacs.files import clear_disk_errors, read_json, write_json
from snacs.network import windows
from snacs.network.batches import Forward, evaluating, move, run, size_of, tensors_of
from snacs.network.calibration import Calibration
from snacs.network.growing import GrowingArray
from snacs.network.layers import bias_of, module_of, weight_of
from snacs.values import Evidence, FloatArray, IntArray, Layer, Structure

Progress = Callable[[int, int], None]
INDEX = "evidence.json"
_ARRAYS = ("windows", "inputs", "outputs", "window_means")


def gather_evidence(
    model: nn.Module,
    structure: Structure,
    calibration: Calibration,
    *,
    config: Config,
    folder: Path,
    seed: int,
    forward: Forward | None = None,
    progress: Progress | None = None,
    layers: Sequence[str] | None = None,
) -> dict[str, Evidence]:
    """Watch all prunable layers (or ``layers``) on the calibration images.

    Parameters
    ----------
    config : Config
        ``samples="positions"``: ``config.positions`` random output positions per image and call;
        ``"pooled"``: one spatial mean per image and call.
    folder : Path
        Receives one subfolder per layer and an index; nothing is left there if this fails.
    progress : function of images done and images in total, optional

    Returns
    -------
    dict of Evidence
        By layer name, arrays memory-mapped read-only; also from :func:`load_evidence`.
    """
    chosen = _chosen(structure, layers)
    places = {layer.name: _folder_name(structure, layer) for layer in chosen}
    made: list[Path] = []
    recorders: dict[str, _Recorder] = {}
    with clear_disk_errors(folder):
        try:
            (folder / INDEX).unlink(missing_ok=True)
            for layer in chosen:
                place = folder / places[layer.name]
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir(parents=True)
                made.append(place)
                module = module_of(model, layer)
                recorders[layer.name] = _Recorder(module, layer, place, config=config, seed=seed)
            _watch(model, recorders, calibration, forward, progress)
            for recorder in recorders.values():
                recorder.finish(calibration.labels)
            write_json(folder / INDEX, {"layers": places, "images": len(calibration.labels)})
        except BaseException:
            for recorder in recorders.values():
                recorder.abandon()
            for place in made:
                shutil.rmtree(place, ignore_errors=True)
            raise
    return load_evidence(folder, structure)


def load_evidence(folder: Path, structure: Structure) -> dict[str, Evidence]:
    """Open what :func:`gather_evidence` wrote; arrays are memory-mapped, not read."""
    try:
        index = read_json(folder / INDEX)
        places = dict(index["layers"])
        return {
            name: _load(folder / _inside(place), structure[name]) for name, place in places.items()
        }
    except (FileNotFoundError, InputError, KeyError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"{folder} does not hold evidence of this network that can be read "
            f"({type(error).__name__}: {error}). Delete the folder and gather it again."
        ) from error


class _Recorder:
    """Collects one layer's rows; each call of the layer within a pass has files of its own."""

    def __init__(
        self, module: nn.Module, layer: Layer, place: Path, *, config: Config, seed: int
    ) -> None:
        self.module, self.layer, self.place = module, layer, place
        self.pooled = config.samples == "pooled"
        self.count = config.positions
        self.seed = seed
        self.images = 0
        self._call = 0
        self._streams: list[np.random.Generator] = []
        self._arrays: list[dict[str, GrowingArray]] = []
        self._squares = np.zeros(layer.channels)
        self._values = 0

    def begin(self, images: int) -> None:
        """A new batch follows."""
        self.images, self._call = images, 0

    def hook(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        data = next(tensors_of([args, kwargs]))
        view = windows.view_of(module, self.layer, data, output, self.images)
        self._check(view)
        call, self._call = self._call, self._call + 1
        if call == len(self._arrays):
            self._start_call(call)
        means = windows.window_means(view)
        rows: dict[str, Tensor] = {"window_means": means}
        if self.pooled:
            rows["inputs"] = windows.input_means(view)
            rows["outputs"] = windows.output_means(view)
        else:
            places = draw_places(self._streams[call], self.images, view.positions, self.count)
            rows["windows"], rows["outputs"] = windows.pick(view, places)
            rows["inputs"] = windows.centres(view, rows["windows"])
        with clear_disk_errors(self.place):  # else a full disk looks like a failing network
            for name, values in rows.items():
                self._arrays[call][name].append(values.cpu().numpy())

    def _start_call(self, call: int) -> None:
        # The name, not the place in the network, seeds a layer: ignoring one changes no other.
        name = zlib.crc32(self.layer.name.encode())
        self._streams.append(np.random.default_rng([self.seed, name, call]))
        names = [name for name in _ARRAYS if not (self.pooled and name == "windows")]
        self._arrays.append(
            {name: GrowingArray(self.place / f"{name}.{call}.part") for name in names}
        )

    def _check(self, view: windows.View) -> None:
        squares = windows.input_squares(view)
        for what, total in (("inputs", squares.sum()), ("outputs", view.output.sum())):
            if not bool(torch.isfinite(total)):
                raise InputError(
                    f"Layer {self.layer.name!r} has NaN or infinite {what} on the calibration "
                    "images. Check the weights before it, the images' normalisation, and whether "
                    "the network overflows in its floating type."
                )
        self._squares += squares.cpu().numpy()
        self._values += view.plain.shape[0] * view.plain.shape[2]

    def finish(self, labels: IntArray) -> None:
        """Join the calls, one after the other, and write the small arrays."""
        if not self._arrays:
            raise InputError(
                f"Layer {self.layer.name!r} was not called on the calibration images, though it "
                "was on the first batch; leave it out with ignore=."
            )
        for arrays in self._arrays:
            for array in arrays.values():
                array.close()
        for name in self._arrays[0]:
            self._join(name)
        rows = sum(arrays["window_means"].rows for arrays in self._arrays)
        repeats = -(-rows // len(labels))
        small: dict[str, Any] = {
            "weight": weight_of(self.module, self.layer),
            "input_rms": np.sqrt(self._squares / self._values).astype(np.float32),
            "labels": np.tile(labels, repeats)[:rows],
        }
        bias = bias_of(self.module)
        if bias is not None:
            small["bias"] = bias
        for name, values in small.items():
            np.save(self.place / f"{name}.npy", values, allow_pickle=False)

    def _join(self, name: str) -> None:
        parts = [arrays[name] for arrays in self._arrays]
        target = self.place / f"{name}.npy"
        if len(parts) == 1:
            parts[0].path.replace(target)
            return
        with GrowingArray(target) as joined:
            for part in parts:
                joined.extend(part)
                part.path.unlink()

    def abandon(self) -> None:
        for arrays in self._arrays:
            for array in arrays.values():
                array.abandon()


def draw_places(stream: np.random.Generator, images: int, positions: int, count: int) -> IntArray:
    """(images, k) different positions per image, k = min(count, positions), each equally likely.

    Every image takes the same numbers from the stream, whatever batch it comes in.
    """
    count = min(count, positions)
    draws = stream.random((images, count))
    places = np.empty((images, count), dtype=np.int64)
    for k in range(count):
        # The k-th draw picks among the positions − k that are left; step over those taken.
        place = np.minimum((draws[:, k] * (positions - k)).astype(np.int64), positions - k - 1)
        for taken in np.sort(places[:, :k], axis=1).T:
            place += place >= taken
        places[:, k] = place
    return places


def _watch(
    model: nn.Module,
    recorders: Mapping[str, _Recorder],
    calibration: Calibration,
    forward: Forward | None,
    progress: Progress | None,
) -> None:
    handles = []
    total, done = len(calibration.labels), 0
    try:
        for recorder in recorders.values():
            handles.append(recorder.module.register_forward_hook(recorder.hook, with_kwargs=True))
        with evaluating(model), torch.compiler.set_stance("force_eager"):
            for batch in calibration.batches:
                size = size_of(batch)
                for recorder in recorders.values():
                    recorder.begin(size)
                run(model, move(batch, model), forward)
                done += size
                if progress is not None:
                    progress(done, total)
    finally:
        for handle in handles:
            handle.remove()


def _chosen(structure: Structure, names: Sequence[str] | None) -> list[Layer]:
    if names is None:
        return list(structure.prunable)
    known = {layer.name: layer for layer in structure.layers}
    for name in names:
        if name not in known:
            raise InputError(
                f"There is no layer {name!r}; the network has {', '.join(map(repr, known))}."
            )
    return [known[name] for name in dict.fromkeys(names)]


def _folder_name(structure: Structure, layer: Layer) -> str:
    """A name that is safe on any file system, whatever the layer is called."""
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", layer.name)[:60].strip("-")
    return f"{structure.layers.index(layer):04d}-{slug}"


def _inside(place: Any) -> str:
    if not isinstance(place, str) or not re.fullmatch(r"\d+-[A-Za-z0-9_-]*", place):
        raise ValueError(f"{place!r} is no folder of ours")
    return place


def _load(place: Path, layer: Layer) -> Evidence:
    def read(name: str) -> FloatArray:
        array: FloatArray = np.load(place / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return array

    means = read("window_means")
    pooled = not (place / "windows.npy").exists()
    found = Evidence(
        layer=layer,
        weight=read("weight"),
        bias=read("bias") if (place / "bias.npy").exists() else None,
        windows=means if pooled else read("windows"),
        inputs=read("inputs"),
        outputs=read("outputs"),
        window_means=means,
        input_rms=read("input_rms"),
        labels=np.load(place / "labels.npy", mmap_mode="r", allow_pickle=False),
    )
    _check_shapes(found)
    return found


def _check_shapes(found: Evidence) -> None:
    layer, samples, images = found.layer, len(found.outputs), len(found.labels)
    expected = {
        "weight": (layer.c_out, layer.c_in, layer.kernel),
        "windows": (samples, layer.channels, layer.kernel),
        "inputs": (samples, layer.channels),
        "outputs": (samples, layer.c_out),
        "window_means": (images, layer.channels, layer.kernel),
        "input_rms": (layer.channels,),
    }
    for name, shape in expected.items():
        got = getattr(found, name).shape
        if got != shape:
            raise ValueError(f"{name} of layer {layer.name!r} is {got}, expected {shape}")
