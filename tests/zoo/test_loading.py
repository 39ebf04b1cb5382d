"""Networks by name, and from a package that someone wrote in their own folder."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from snacs.errors import InputError
from snacs.zoo.loading import network
from snacs.zoo.networks import NETWORKS


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package in the current folder; forgotten again afterwards."""
    folder = tmp_path / "userspackage"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "net.py").write_text(
        textwrap.dedent("""
        from torch import nn
        from userspackage.parts import layer
        def build(): return nn.Sequential(layer(), nn.ReLU())
        def lazy():
            import userspackage.late
            return userspackage.late.net
        def needs(width): return nn.Linear(width, width)
        def broken(): raise RuntimeError("no GPU here")
        def text(): return "net"
        class Own(nn.Linear):
            def __init__(self): super().__init__(3, 3)
        class Holder:
            build = staticmethod(build)
        ready = nn.Linear(2, 2)
        number = 3
        """)
    )
    (folder / "parts.py").write_text(
        "from torch import nn\ndef layer(): return nn.Conv2d(1, 2, 3)\n"
    )
    (folder / "late.py").write_text("from torch import nn\nnet = nn.Linear(5, 5)\n")
    (folder / "lacking.py").write_text("import surely_not_installed\n")
    (folder / "bad.py").write_text("1 / 0\n")
    (folder / "syntax.py").write_text("def build(:\n")
    monkeypatch.chdir(tmp_path)
    yield "userspackage"
    for name in [name for name in sys.modules if name.split(".")[0] == "userspackage"]:
        del sys.modules[name]


def test_zoo_names_give_their_entry() -> None:
    build, entry = network("resnet56")
    assert entry is NETWORKS["resnet56"]
    assert sum(p.numel() for p in build().parameters()) == 853_018


@pytest.mark.parametrize("name", ["build", "lazy", "Own", "ready", "Holder.build"])
def test_functions_classes_and_modules_of_the_users_own(package: str, name: str) -> None:
    path = list(sys.path)
    build, entry = network(f"{package}.net:{name}")
    one, two = build(), build()
    assert entry is None
    assert isinstance(one, nn.Module)
    assert sys.path == path
    if name != "lazy":
        # A lazily made module is the factory's own business; otherwise each call is a new one.
        assert not {id(p) for p in one.parameters()} & {id(p) for p in two.parameters()}


def test_a_ready_module_is_handed_out_as_a_copy(package: str) -> None:
    build, _ = network(f"{package}.net:ready")
    with torch.no_grad():
        next(build().parameters()).fill_(7)
    assert not (next(build().parameters()) == 7).any()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("resnet65", r"no network 'resnet65' in the zoo\. Did you mean 'resnet56'.*small-conv"),
        ("nosuchpackage.net:build", r"no Python module 'nosuchpackage'"),
        ("userspackage.nosuch:build", r"no Python module 'userspackage\.nosuch'"),
        ("userspackage.net:biuld", r"no 'biuld'.*Did you mean 'build'"),
        ("userspackage.lacking:build", r"needs the module 'surely_not_installed'"),
        ("userspackage.bad:build", r"ZeroDivisionError"),
        ("userspackage.syntax:build", r"SyntaxError"),
        ("userspackage.net:number", r"Got a value of type int"),
        ("userspackage/net.py:build", r"userspackage\.net:build"),
        ("userspackage.net:", r"package\.module:factory"),
        (":build", r"package\.module:factory"),
    ],
)
def test_what_cannot_be_found_is_explained(package: str, spec: str, message: str) -> None:
    path = list(sys.path)
    with pytest.raises(InputError, match=message):
        network(spec)
    assert sys.path == path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("needs", "without arguments: TypeError"),
        ("broken", "RuntimeError: no GPU here"),
        ("text", "must return a torch.nn.Module. Got str"),
    ],
)
def test_factories_that_fail_are_explained(package: str, name: str, message: str) -> None:
    build, _ = network(f"{package}.net:{name}")
    with pytest.raises(InputError, match=message):
        build()
    assert str(Path.cwd()) not in sys.path
