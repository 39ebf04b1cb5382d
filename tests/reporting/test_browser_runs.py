"""Reports of real runs in real headless Chromium: the demo, and ResNet56."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from test_browser import chosen, drawn

import snacs
from snacs.experiments import demo as demo_module
from snacs.files import read_json, write_json
from snacs.network.masking import bake_
from snacs.reporting.progress import silent
from snacs.store import Run
from snacs.zoo.entry import seeded
from snacs.zoo.networks import NETWORKS

LAYER = ("scores", "mask", "histogram", "curve", "curves", "gallery", "flow")


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    """``snacs demo`` with few images and one epoch of each training: every stage of it is real."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TRAINING", "RETRAINING"):
            patch.setattr(demo_module, name, replace(getattr(demo_module, name), epochs=1))
        opened = demo_module.open_data
        patch.setattr(
            demo_module, "open_data", lambda *a, **kw: opened(*a, **kw).subset(slice(0, 160))
        )
        demo_module.demo(folder, seeds=1, target=0.8, watch=silent)
    return folder / "seed-0"


@pytest.fixture(scope="module")
def resnet_run(tmp_path_factory):
    """ResNet56 as the zoo builds it, pruned by 68 % on a few random images."""
    folder = tmp_path_factory.mktemp("resnet56") / "run"
    generator = torch.Generator().manual_seed(0)
    images = [(torch.randn(40, 3, 32, 32, generator=generator), torch.arange(40) % 4)]
    model = seeded(NETWORKS["resnet56"].build, 0)
    with Run(folder) as run:
        run.note(arguments={"command": "prune", "network": "resnet56", "target": 0.68})
        pruned = snacs.prune(
            model, images, target=0.68, test=images, run=run, jobs=1,
            repair=False, batchnorm=False, shifts=1, positions=1, shares=(0.1,), progress=False,
            score="acmi", allocation="svm",
        )  # fmt: skip
        bake_(pruned.model)
        write_json(folder / "result.json", pruned.facts())
    return folder


def test_the_report_of_a_demo_run(open_page, demo_run):
    page = open_page(snacs.report(demo_run, demo_run / "report.html"))
    result = read_json(demo_run / "result.json")
    assert page.locator("#title").text_content() == "small-resnet"
    for name in (*LAYER, "accuracy", "compression", "repair", "training-accuracy", "training-loss"):
        assert drawn(page, name).locator("path, rect, circle, image").count() > 3, name
    shown = "\n".join(drawn(page, "accuracy").locator("text").all_text_contents())
    found = [float(number) for number in re.findall(r"(\d+\.\d\d) ±", shown)]
    steps = ("dense", "pruned", "repaired", "retrained")
    # Two digits are shown, and halves are rounded otherwise by a browser than by Python.
    expected = [100 * result["accuracy"][step]["fraction"] for step in steps]
    assert found == pytest.approx(expected, abs=0.005 + 1e-9)
    assert f"{result['weights_kept']:,}" in page.locator("#card-weights").text_content()
    assert "snacs demo --target 0.8" in page.locator("#command").text_content()


def test_the_report_of_a_resnet56_run(open_page, resnet_run):
    path = snacs.report(resnet_run, resnet_run / "report.html")
    assert path.stat().st_size < 6e6
    result = read_json(resnet_run / "result.json")
    page = open_page(path)
    assert page.locator("#layers tbody tr").count() == 56
    # Only a score that counts in cells can say how they are filled.
    for name in (*LAYER, "occupancy", "accuracy", "compression", "cost-weights", "cost-macs"):
        assert drawn(page, name).locator("path, rect, circle, image").count() > 3, name
    shown = page.locator("#layers tbody tr td:nth-child(7)").all_text_contents()
    assert shown == [f"{row['weights_kept']:,} of {row['weights']:,}" for row in result["layers"]]
    # 27 residual blocks, but the last has nobody behind it except the classifier: one each.
    strokes = drawn(page, "flow").locator("g[fill=none] path").count()
    assert strokes == 27
    page.locator("#layers tbody tr").nth(40).click()
    assert chosen(page) == result["layers"][40]["name"]
    page.keyboard.press("ArrowDown")
    assert chosen(page) == result["layers"][41]["name"]


def test_sixty_eight_percent_in_the_headline(open_page, resnet_run):
    page = open_page(snacs.report(resnet_run, resnet_run / "again.html"), width=390, height=844)
    assert "−68.0 %" in page.locator("#card-weights").text_content()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
