"""Damaged, foreign and hostile files: a clear error each time, and nothing is ever run."""

from __future__ import annotations

import builtins
import copy
import json
import pickle
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from savednets import Everything
from torch import nn

from snacs.artifact import container, inspect, load, save
from snacs.errors import InputError

DAMAGES = 1000
FORGERIES = 200


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = Everything()
    with torch.no_grad():
        model.gate.weight[:, ::2] = 0
        model.blocks[0].conv.weight[1:, 1:] = 0
    path = tmp_path_factory.mktemp("good") / "net.snacs"
    save(model, path)
    load(path)  # whatever torch imports late is imported now
    return path


class Ran(BaseException):
    """Something was run; nobody catches this by accident."""


def read_quietly(read: Callable[[Path], Any], path: Path) -> InputError | None:
    """Read a file while code, pickles and imports are errors; its InputError, if it gave one."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Ran(args)

    before = set(sys.modules)
    # Only around the reading: pytest compiles code itself to show a failure.
    with pytest.MonkeyPatch.context() as patch:
        for place, name in (
            *((builtins, "eval"), (builtins, "exec"), (builtins, "compile")),
            *((pickle, "load"), (pickle, "loads"), (torch, "load")),
        ):
            patch.setattr(place, name, refuse)
        try:
            read(path)
        except InputError as error:
            return error
        finally:
            new = set(sys.modules) - before
    assert new == set()
    return None


def damaged(content: bytes, draw: random.Random) -> bytes:
    """One random corruption that changes at least one byte."""
    kind = draw.choice(["cut", "flip", "many", "zero", "insert", "swap", "length", "header", "add"])
    data = bytearray(content)
    place = draw.randrange(len(data))
    if kind == "cut":
        return bytes(data[:place])
    if kind == "flip":
        data[place] ^= 1 << draw.randrange(8)
    elif kind == "many":
        for _ in range(draw.randrange(2, 50)):
            data[draw.randrange(len(data))] = draw.randrange(256)
    elif kind == "zero":
        data[place : place + draw.randrange(1, 500)] = bytes(min(300, len(data) - place))
    elif kind == "insert":
        data[place:place] = draw.randbytes(draw.randrange(1, 20))
    elif kind == "swap":
        other = draw.randrange(len(data))
        data[place : place + 16], data[other : other + 16] = (
            data[other : other + 16],
            data[place : place + 16],
        )
    elif kind == "length":  # a header that claims to be huge
        data[:8] = draw.choice([2**63, 2**40, len(data), 0, 1, 99_999_999]).to_bytes(8, "little")
    elif kind == "header":
        start = 8 + draw.randrange(int.from_bytes(data[:8], "little"))
        data[start] = draw.choice(b'0123456789"{}[]:,-e \x00\xff')
    else:
        data += draw.randbytes(draw.randrange(1, 100))
    return bytes(data) if bytes(data) != content else damaged(content, draw)


def test_a_thousand_damages(good: Path, tmp_path: Path) -> None:
    content, draw, path = good.read_bytes(), random.Random(0), tmp_path / "bad.snacs"
    messages = set()
    for _ in range(DAMAGES):
        path.write_bytes(damaged(content, draw))
        error = read_quietly(load, path)
        assert error is not None
        messages.add(str(error).split("bad.snacs")[1][:20])
    assert len(messages) >= 3  # several kinds of damage were told apart


WRONG = (
    None,
    True,
    -1,
    0,
    2**40,
    10**30,
    1e308,
    "",
    "os.system",
    "__class__",
    "../../etc/passwd",
    [],
    [[]],
    {},
    {"node": "x"},
    {"tuple": [1, 2]},
    {"a": {"b": {}}},
)


def forged(document: Any, draw: random.Random) -> None:
    """Replace, remove or add a value at a random place of a nest."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            places.append((value, key))
            if isinstance(item, dict | list):
                walk(item)

    walk(document)
    holder, key = draw.choice(places)
    action = draw.random()
    if action < 0.7:
        holder[key] = copy.deepcopy(draw.choice(WRONG))
    elif action < 0.85:
        del holder[key]
    elif isinstance(holder, dict):
        holder[str(draw.random())] = copy.deepcopy(draw.choice(WRONG))
    else:
        holder.insert(key, copy.deepcopy(draw.choice(WRONG)))


def test_forged_files_with_a_true_seal(good: Path, tmp_path: Path) -> None:
    """Whoever can seal a file can say anything in it: an error, or a network; never code."""
    document, tensors, _ = container.read(good)
    draw, path, refused = random.Random(1), tmp_path / "bad.snacs", 0
    for _ in range(FORGERIES):
        changed, parts = copy.deepcopy(document), dict(tensors)
        forged(changed, draw)
        if draw.random() < 0.3:
            name = draw.choice(sorted(parts))
            part = parts.pop(name)
            flat = part.reshape(-1)
            new = draw.choice([flat[:0], part.double(), flat[:-1], part.unsqueeze(0)])
            parts[draw.choice([name, name, "other"])] = new.contiguous().clone()
        container.write(path, changed, parts)
        for read in (load, inspect):
            error = read_quietly(read, path)
            refused += error is not None
            assert error is None or "bad.snacs" in str(error)
    assert refused > FORGERIES  # most forgeries matter, to one reader or to both


def node(op: str, target: str, *args: Any) -> dict[str, Any]:
    return {"name": "evil", "op": op, "target": target, "args": list(args), "kwargs": {}}


X = {"node": "x"}


@pytest.mark.parametrize(
    "evil",
    [
        node("call_function", "os.system", "touch hacked"),
        node("call_function", "builtins.eval", "1"),
        node("call_function", "torch.load", "net.snacs"),
        node("call_function", "torch.hub.load", "a", "b"),
        node("call_function", "getattr", X, "__class__"),
        node("call_function", "getattr", "text", "shape"),
        node("call_method", "__reduce__", X),
        node("call_method", "numpy", X),
        node("call_method", "view", "text"),
        node("call_module", "forward", X),
        node("get_attr", "__class__"),
        node("import", "os"),
        node("call_function", "operator.add", {"node": "evil"}, 1),
        node("call_function", "operator.add", {"eval": "1"}, 1),
    ],
    ids=lambda evil: f"{evil['op']}-{evil['target']}",
)
def test_words_that_are_not_in_the_vocabulary(evil: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "evil.snacs"
    document: dict[str, Any] = {
        "version": 1,
        "graph": {
            "nodes": [
                {"name": "x", "op": "placeholder", "target": "x"},
                evil,
                {"name": "output", "op": "output", "value": {"node": "evil"}},
            ],
            "modules": [],
        },
        **{key: {} for key in ("modules", "tensors", "tied", "provenance")},
        **{key: [] for key in ("constants", "trained", "masks", "notes")},
    }
    container.write(path, document, {})
    assert "evil.snacs cannot be loaded" in str(read_quietly(load, path))
    assert not (tmp_path / "hacked").exists()


def change(good: Path, path: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    document, tensors, _ = container.read(good)
    edit(document)
    container.write(path, document, tensors)
    return path


def test_huge_sizes_are_refused_before_memory_is_asked_for(good: Path, tmp_path: Path) -> None:
    def wide(document: dict[str, Any]) -> None:
        document["modules"]["fc"]["arguments"]["out_features"] = 10**15

    def long(document: dict[str, Any]) -> None:
        name = next(n for n, d in document["tensors"].items() if d["kind"] != "dense")
        document["tensors"][name]["shape"] = [10**6, 10**6]

    with pytest.raises(InputError, match="its module expects"):
        load(change(good, tmp_path / "a.snacs", wide))
    with pytest.raises(InputError, match="claims to have 1e"):
        load(change(good, tmp_path / "b.snacs", long))


def test_deep_nests_and_other_versions(good: Path, tmp_path: Path) -> None:
    nest: Any = 1
    for _ in range(400):
        nest = [nest]

    def deep(document: dict[str, Any]) -> None:
        calls = [n for n in document["graph"]["nodes"] if n["op"] == "call_function"]
        calls[0]["args"] = [nest]

    with pytest.raises(InputError, match="nested too deeply"):
        load(change(good, tmp_path / "a.snacs", deep))
    with pytest.raises(InputError, match="version 7"):
        load(change(good, tmp_path / "b.snacs", lambda document: document.update(version=7)))


def test_foreign_files(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "zip.pt")
    (tmp_path / "bare.pkl").write_bytes(pickle.dumps({"a": 1}))
    save_file({"w": torch.zeros(2)}, tmp_path / "plain.safetensors")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text.json").write_text(json.dumps({"format": "snacs-artifact"}))
    for name, message in {
        "zip.pt": "is a pickle",
        "bare.pkl": "is a pickle",
        "plain.safetensors": "looks like plain safetensors",
        "empty": "no snacs file",
        "text.json": "no snacs file",
        "nowhere": "There is no file",
        ".": "is a folder",
    }.items():
        with pytest.raises(InputError, match=message):
            load(tmp_path / name)
        with pytest.raises(InputError, match=message):
            inspect(tmp_path / name)


def test_any_header_length_is_read(tmp_path: Path) -> None:
    """The first byte of a file is part of a length: 0x80 must not pass for a pickle."""
    seen = set()
    for length in range(0, 300, 8):
        save(nn.Linear(2, 2), tmp_path / "net.snacs", provenance={"text": "x" * length})
        seen.add((tmp_path / "net.snacs").read_bytes()[0])
        assert isinstance(load(tmp_path / "net.snacs"), nn.Module)
    assert 0x80 in seen
