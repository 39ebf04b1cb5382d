"""The machine from one product of all samples is libsvm's own, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC

from snacs.limits import fitting


def _same(features, labels, gamma):
    ours = fitting.fit_svc(features, labels, gamma)
    theirs = SVC(C=1.0, kernel="rbf", gamma=gamma).fit(features, labels)
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    np.testing.assert_array_equal(ours.n_support_, theirs.n_support_)
    np.testing.assert_array_equal(ours.dual_coef_, theirs.dual_coef_)
    np.testing.assert_array_equal(ours.intercept_, theirs.intercept_)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    samples=st.integers(20, 150),
    width=st.integers(1, 70),
    classes=st.integers(2, 6),
    offset=st.sampled_from([0.0, 1.0, 50.0]),
    repeated=st.booleans(),
)
def test_same_bits_as_libsvm(seed, samples, width, classes, offset, repeated):
    rng = np.random.default_rng(seed)
    labels = np.arange(samples) % classes
    features = np.maximum(rng.normal(size=(samples, width)) + 0.3 * labels[:, None], 0) + offset
    if repeated:
        features[samples // 2 :] = features[: samples - samples // 2]
    variance = features.var()
    _same(features, labels, 1.0 / (width * variance) if variance > 0 else 1.0)


def test_same_bits_with_many_samples():
    rng = np.random.default_rng(0)
    labels = np.arange(600) % 10
    features = np.maximum(rng.normal(size=(600, 256)) + rng.normal(size=(10, 256))[labels], 0)
    _same(features, labels, 1.0 / (256 * features.var()))


def test_unsure_entries_are_computed_as_libsvm_does(monkeypatch):
    # Without the second look some entry of a million rounds the other way: count those looked at.
    rng = np.random.default_rng(1)
    features = rng.normal(size=(900, 40)) + 30.0
    looked = []

    def counting(kernel, *rest):
        looked.append(original(kernel, *rest))
        return looked[-1]

    original = fitting.unsure_rounding
    monkeypatch.setattr(fitting, "unsure_rounding", counting)
    _same(features, np.arange(900) % 3, 1.0 / 40)
    assert looked[0] > 0


def test_far_from_the_origin_libsvm_computes_its_own_values():
    rng = np.random.default_rng(2)
    features = rng.normal(size=(60, 5)) + 1e6
    assert fitting._kernel_matrix(features, 1.0) is None
    _same(features, np.arange(60) % 2, 1.0)


@pytest.mark.parametrize("value", [0.0, 2.0])
def test_constant_features(value):
    _same(np.full((30, 4), value), np.arange(30) % 3, 1.0)
