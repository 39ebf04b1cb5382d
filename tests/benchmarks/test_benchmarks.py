"""The benchmarks run and tell what they should; how fast is for ``make bench`` to say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.__main__ import main
from benchmarks.layers import class_maps
from benchmarks.measure import Line, best_of
from benchmarks.scaling import tables

from benchmarks import baselines
from snacs.scores.acmi import estimate
from snacs.scores.kernels import number_codes


@pytest.mark.parametrize(
    "part", ["scores", "limits", "network", "sparse", "running", "filters", "scipy"]
)
def test_every_part_runs_at_tiny_sizes_and_writes_json(part, tmp_path, capsys):
    assert main(["--small", "--only", part, "--out", str(tmp_path / "b.json")]) == 0
    facts = json.loads((tmp_path / "b.json").read_text())
    assert facts["machine"]["seed"] == 0
    assert facts["machine"]["cores"] >= 1
    text = capsys.readouterr().out
    for line in facts["lines"]:
        assert line["part"] == part
        assert line["name"] in text
        assert np.isfinite(line["value"])
        if "bits" in line["name"] or "differ from SVC" in line["name"]:
            assert line["value"] == 0


@pytest.mark.parametrize("pair", [baselines.dictionary_acmi, baselines.counter_acmi])
def test_dictionary_baselines_are_the_estimator(pair):
    rng = np.random.default_rng(0)
    x, y, z = rng.normal(size=(3, 200, 2))
    directions, shift = np.eye(2), np.array([0.2, 0.4, 0.6])
    found = pair(x, y, z, directions=directions, width=1.0, shift=shift)
    codes = [
        number_codes(np.floor(v + b).astype(np.int64).T)[0]
        for v, b in zip((x, y, z), shift, strict=True)
    ]
    assert found == pytest.approx(estimate(*codes), abs=1e-12)


def test_a_line_knows_whether_it_holds():
    assert Line("fast", 12.0, "×", 10).holds is True
    assert Line("slow", 12.0, "×", 10, "lower").holds is False
    assert Line("told", 12.0, "×").holds is None
    assert "wanted ≥ 10" in Line("fast", 12.0, "×", 10).text()


def test_best_of_calls_once_more_than_it_times():
    calls = []
    assert best_of(3, lambda: calls.append(1)) >= 0
    assert len(calls) == 4


def test_class_maps_carry_their_class():
    maps, labels = class_maps(images=200, channels=6, side=3)
    means = np.stack([maps[labels == c].mean(axis=(0, 2, 3)) for c in range(10)])
    assert means.std(axis=0).mean() > 0.1
    assert (maps >= 0).all()


def test_scaling_tables_have_time_and_memory():
    found = tables(small=True)
    assert set(found) == {"samples", "directions", "groups", "filters", "threads"}
    for rows in found.values():
        assert all(row["seconds"] > 0 and row["peak MB"] >= 0 for row in rows)
