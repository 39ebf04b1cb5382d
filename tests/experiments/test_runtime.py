"""The run-time experiment at tiny sizes: what it writes, not how long it takes."""

from __future__ import annotations

import json

import numpy as np

from snacs.experiments.drawing import draw_runtime
from snacs.experiments.runtime import (
    GROUPS,
    MST,
    ONE,
    PUBLISHED,
    WEIGHTS,
    reproduce_runtime,
    wide_layer,
)
from snacs.reporting.figures import draw
from snacs.reporting.progress import silent
from snacs.store import Run

SIZES = {"trials": 2, "filters": 8, "samples": 60, "pairs": 2}


def test_every_method_and_group_has_its_seconds_and_is_kept(tmp_path):
    with Run(tmp_path / "run") as run:
        found = reproduce_runtime(run, groups=(2, 4), watch=silent, **SIZES)
        again = reproduce_runtime(run, groups=(2, 4), watch=silent, **SIZES)
    assert [(row["method"], row["groups"]) for row in found["rows"]] == [
        (method, count) for method in (MST, ONE, WEIGHTS) for count in (2, 4)
    ]
    assert again["rows"] == found["rows"]  # measured seconds would differ: these were kept
    assert all(row["seconds"] > 0 for row in found["rows"])
    assert "extrapolated" in found["rows"][0]["note"]
    assert found["svm"] > 0


def test_published_seconds_stand_beside_ours_and_can_be_drawn(tmp_path):
    with Run(tmp_path / "run") as run:
        found = reproduce_runtime(run, groups=GROUPS, watch=silent, **SIZES)
        (run.folder / "runtime.json").write_text(json.dumps(found))
        paths = draw_runtime(found["rows"], run.folder)
        other = draw("runtime", [run.folder / "runtime.json"], run.folder / "other.svg")
    methods = {row["method"] for row in found["rows"]}
    assert set(PUBLISHED) < methods
    assert [path.name for path in paths] == ["runtime.svg", "runtime.png"]
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    assert other.exists()  # `snacs figure runtime` reads the same file


def test_the_made_up_layer_is_a_layer():
    evidence = wide_layer(c_out=4, c_in=6, samples=50, kernel=3, seed=1)
    expected = np.einsum("oik,nik->no", evidence.weight, evidence.windows)
    assert np.allclose(evidence.outputs, expected, atol=1e-5)  # float32 sums of 18 terms
    assert (evidence.windows >= 0).all()
    assert sorted(set(evidence.labels.tolist())) == list(range(10))
