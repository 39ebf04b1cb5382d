"""Curves equal the plain way: mask the weights, recompute the features, ask scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from snacs.config import Config
from snacs.errors import InputError
from snacs.limits import measure_curves
from snacs.limits.curves import LEVELS
from snacs.limits.features import pruned_features, unpruned_features
from snacs.values import Evidence, Layer

NOBODY = 0.0


def _evidence(c_out=12, c_in=10, kernel=4, images=120, *, classes=3, groups=1, bias=True, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(images) % classes
    centres = rng.normal(size=(classes, c_in * groups, 1))
    means = np.maximum(centres[labels] + rng.normal(size=(images, c_in * groups, kernel)), 0)
    weight = rng.normal(size=(c_out, c_in, kernel))
    unused = np.zeros((1, 1), dtype=np.float32)
    return Evidence(
        layer=Layer("conv", "Conv2d", c_out, c_in, kernel, groups=groups),
        weight=weight.astype(np.float32),
        bias=rng.normal(size=c_out).astype(np.float32) if bias else None,
        windows=unused,
        inputs=unused,
        outputs=unused,
        window_means=means.astype(np.float32),
        input_rms=unused[0],
        labels=labels,
    )


def _plain_features(evidence, keep):
    """One line per filter: ReLU of the masked weights times the window means, plus bias."""
    layer = evidence.layer
    channels = layer.channel_of()
    result = np.empty((len(evidence.window_means), layer.c_out))
    for i in range(layer.c_out):
        weight = evidence.weight[i].astype(float) * keep[i][:, None]
        windows = evidence.window_means[:, channels[i]].astype(float)
        bias = 0.0 if evidence.bias is None else float(evidence.bias[i])
        result[:, i] = np.maximum((windows * weight).sum(axis=(1, 2)) + bias, 0)
    return result


def _plain_accuracy(evidence, scores, rows, level):
    layer = evidence.layer
    count = level * layer.connections // 100
    flat = [
        (scores[i, j], i, j) for i in range(layer.c_out) for j in range(layer.c_in) if not rows[i]
    ]
    keep = np.ones((layer.c_out, layer.c_in), dtype=bool)
    if count > len(flat):
        return np.nan
    for _, i, j in sorted(flat)[:count]:
        keep[i, j] = False
    svc = SVC().fit(_plain_features(evidence, np.ones_like(keep)), evidence.labels)
    return float(np.mean(svc.predict(_plain_features(evidence, keep)) == evidence.labels))


def _nobody(evidence):
    return (NOBODY, np.zeros(evidence.layer.c_out, dtype=bool))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_curve_equals_the_plain_way(groups, classes):
    evidence = _evidence(c_in=6, groups=groups, classes=classes, bias=groups == 1)
    # Few distinct scores: ties are decided by index.
    scores = np.round(np.random.default_rng(1).random((12, 6)), 1)
    rows = np.zeros(12, dtype=bool)
    rows[[2, 7, 11]] = True
    curves = measure_curves(
        evidence,
        scores,
        protections=[_nobody(evidence), (0.25, rows)],
        config=Config(),
        seed=0,
    )
    assert [curve.share for curve in curves] == [0.0, 0.25]
    for curve, mask in zip(curves, (_nobody(evidence)[1], rows), strict=True):
        np.testing.assert_allclose(curve.levels, np.arange(1, 100) / 100)
        assert curve.base == _plain_accuracy(evidence, scores, mask, 0)
        for level in (1, 10, 33, 50, 74, 75, 76, 90, 99):
            expected = _plain_accuracy(evidence, scores, mask, level)
            np.testing.assert_equal(curve.accuracy[level - 1], expected)


def test_levels_beyond_the_unprotected_share_are_marked():
    evidence = _evidence()
    rows = np.arange(12) < 3
    curve = measure_curves(
        evidence, np.random.default_rng(0).random((12, 10)), protections=[(0.25, rows)],
        config=Config(), seed=0,
    )[0]  # fmt: skip
    np.testing.assert_array_equal(np.isnan(curve.accuracy), LEVELS > 75)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    groups=st.sampled_from([1, 2, 3]),
    steps=st.integers(1, 9),
    bias=st.booleans(),
)
def test_features_equal_the_plain_ones(seed, groups, steps, bias):
    evidence = _evidence(6, 4, 3, 20, groups=groups, bias=bias, seed=seed)
    gone_at = np.random.default_rng(seed).integers(0, steps + 1, size=(6, 4))
    samples = np.arange(1, 20, 2)
    for block, features in pruned_features(evidence, samples, gone_at, steps):
        for step in range(steps):
            expected = _plain_features(evidence, gone_at > step)[samples[block]]
            # Sums of 12 float64 products in another order.
            np.testing.assert_allclose(features[step], expected, rtol=0, atol=1e-12)
    dense = _plain_features(evidence, np.ones((6, 4), dtype=bool))[samples]
    np.testing.assert_allclose(unpruned_features(evidence, samples), dense, rtol=0, atol=1e-12)


def test_features_do_not_depend_on_blocks(monkeypatch):
    evidence = _evidence()
    scores = np.random.default_rng(0).random((12, 10))
    options = {"protections": [_nobody(evidence)], "config": Config(), "seed": 0}
    whole = measure_curves(evidence, scores, **options)[0]
    monkeypatch.setattr("snacs.limits.features._BYTES", 1)  # eight samples per block
    monkeypatch.setattr("snacs.limits.svm._ROWS", 7)
    np.testing.assert_array_equal(
        measure_curves(evidence, scores, **options)[0].accuracy, whole.accuracy
    )


def test_an_equal_mask_is_measured_once_and_gives_the_same_curve():
    evidence = _evidence()
    nobody = _nobody(evidence)[1]
    first, second = measure_curves(
        evidence, np.random.default_rng(0).random((12, 10)),
        protections=[(0.0, nobody), (0.05, nobody)], config=Config(), seed=0,
    )  # fmt: skip
    np.testing.assert_array_equal(first.accuracy, second.accuracy)
    assert (first.share, second.share) == (0.0, 0.05)
    assert first.accuracy is not second.accuracy


def test_many_classes_are_drawn_by_seed():
    evidence = _evidence(images=200, classes=20)
    scores = np.random.default_rng(0).random((12, 10))
    config = Config(classes=4)
    rng = np.random.default_rng(5)
    chosen = np.sort(rng.choice(20, size=4, replace=False))
    part = np.isin(evidence.labels, chosen)
    fewer = Evidence(
        **{
            **{name: getattr(evidence, name) for name in evidence.__dataclass_fields__},
            "window_means": evidence.window_means[part],
            "labels": evidence.labels[part],
        }
    )
    drawn = measure_curves(evidence, scores, protections=[_nobody(evidence)], config=config, seed=5)
    given_ = measure_curves(fewer, scores, protections=[_nobody(evidence)], config=config, seed=0)
    np.testing.assert_array_equal(drawn[0].accuracy, given_[0].accuracy)
    assert drawn[0].base == given_[0].base


def test_a_layer_that_says_nothing_has_a_flat_curve():
    evidence = _evidence(bias=False)
    evidence.weight[:] = 0
    scores = np.zeros((12, 10))
    curve = measure_curves(
        evidence, scores, protections=[_nobody(evidence)], config=Config(), seed=0
    )[0]
    assert curve.base == pytest.approx(1 / 3)
    np.testing.assert_array_equal(curve.accuracy, curve.base)


@pytest.mark.parametrize("what", ["class", "labels", "nan", "scores", "shape", "rows"])
def test_what_cannot_be_measured_names_the_layer(what):
    evidence = _evidence()
    scores = np.zeros((12, 10))
    protections = [_nobody(evidence)]
    if what == "class":
        evidence.labels[:] = 3
    elif what == "labels":
        fields = {name: getattr(evidence, name) for name in evidence.__dataclass_fields__}
        evidence = Evidence(**{**fields, "labels": evidence.labels[:-1]})
    elif what == "nan":
        evidence.weight[0, 0, 0] = np.nan
    elif what == "scores":
        scores[3, 3] = np.nan
    elif what == "shape":
        scores = scores.T
    else:
        protections = [(0.0, np.zeros(3, dtype=bool))]
    with pytest.raises(InputError, match="'conv'"):
        measure_curves(evidence, scores, protections=protections, config=Config(), seed=0)


def test_real_images_equal_the_plain_way():
    digits = load_digits()
    rng = np.random.default_rng(0)
    evidence = _evidence(32, 64, 1, 4)
    fields = {name: getattr(evidence, name) for name in evidence.__dataclass_fields__}
    evidence = Evidence(
        **{
            **fields,
            "window_means": (digits.data[:600, :, None] / 16).astype(np.float32),
            "labels": digits.target[:600],
        }
    )
    scores = np.abs(evidence.weight[:, :, 0]) * (1 + 0.1 * rng.random((32, 64)))
    curve = measure_curves(
        evidence, scores, protections=[_nobody(evidence)], config=Config(), seed=0
    )[0]
    assert curve.base > 0.9
    assert curve.accuracy[0] > 0.9 > 0.5 > curve.accuracy[98]
    for level in (5, 40, 60, 80, 95):
        expected = _plain_accuracy(evidence, scores, np.zeros(32, dtype=bool), level)
        assert curve.accuracy[level - 1] == expected
