"""The fast SVM says what scikit-learn says."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.svm import SVC

from snacs.limits import svm


def _problem(kind, classes, seed, samples=160, width=6):
    rng = np.random.default_rng(seed)
    if kind == "blobs":
        x, y = make_blobs(samples, width, centers=classes, cluster_std=4.0, random_state=seed)
        return x, y
    return rng.normal(size=(samples, width)), np.arange(samples) % classes


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("kind", ["blobs", "noise"])
@pytest.mark.parametrize("seed", [0, 1])
def test_predictions_and_decisions_equal_scikit_learn(kind, classes, seed):
    x, y = _problem(kind, classes, seed)
    svc = SVC(decision_function_shape="ovo").fit(x, y)
    machine = svm.fit(x, y)
    rng = np.random.default_rng(seed + 100)
    # Near the training samples, far from them, and where all kernel values vanish.
    asked = np.concatenate([x, x * 0.3, rng.normal(size=(3000, x.shape[1])) * x.std(), x * 50])
    np.testing.assert_array_equal(svm.predict(machine, asked), svc.predict(asked))
    decisions = svm._decisions(
        machine,
        svm._rows(asked, machine.centre, machine.gamma),
        machine.support,
        list(machine.coefficients),
    )
    theirs = svc.decision_function(asked)
    theirs = -theirs[:, None] if classes == 2 else theirs
    # Both are float64 sums of some hundred terms of size one.
    np.testing.assert_allclose(decisions, theirs, rtol=0, atol=1e-9)


def test_every_prediction_holds_near_the_boundary():
    x, y = _problem("noise", 2, 0, width=3)
    x += 100.0  # far from the origin: what float32 would get wrong without the centre
    svc = SVC().fit(x, y)
    # Between points of both classes, bisect until float32 cannot tell the sides apart.
    rng = np.random.default_rng(1)
    low = rng.choice(x[svc.predict(x) == 0], size=2000)
    high = rng.choice(x[svc.predict(x) == 1], size=2000)
    for _ in range(24):
        middle = (low + high) / 2
        above = svc.predict(middle)[:, None] == 1
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    asked = np.concatenate([low, high])
    distance = np.abs(svc.decision_function(asked))
    assert (distance < 1e-6).mean() > 0.9
    sure = distance > 1e-9
    assert sure.mean() > 0.9
    machine = svm.fit(x, y)
    np.testing.assert_array_equal(svm.predict(machine, asked)[sure], svc.predict(asked)[sure])


def test_float32_rounding_stays_well_within_its_bound():
    x, y = _problem("blobs", 10, 3, samples=400, width=64)
    machine = svm.fit(x + 5.0, y)
    asked = np.concatenate([x + 5.0, x * 0.2 + 5.0, x * 3])
    rows = svm._rows(asked, machine.centre, machine.gamma)
    narrow = svm._decisions(
        machine,
        rows.astype(np.float32),
        machine.support.astype(np.float32),
        [block.astype(np.float32) for block in machine.coefficients],
    )
    wide = svm._decisions(machine, rows, machine.support, list(machine.coefficients))
    radius = np.sqrt(-machine.support[:, -1].min())
    bound = svm._bound(machine, np.sqrt(-rows[:, -2]), radius)
    # The bound allows 32 rounding steps; a quarter of it must do, or it is no bound.
    assert (np.abs(narrow - wide) <= bound / 4).all()


def test_votes_tie_to_the_lowest_class():
    # Rock, paper, scissors: 0 beats 1, 2 beats 0, 1 beats 2; one vote each.
    machine = svm.Machine(3, 1.0, np.zeros(1), np.zeros((1, 3)), (), np.zeros(3), np.zeros(3))
    winner, sure = svm._vote(machine, np.array([[1.0, -1.0, 1.0]]), np.zeros((1, 3)))
    assert winner.tolist() == [0]
    assert sure.tolist() == [True]
    # If the pair (1, 2) is open, class 2 may win with two votes.
    _, sure = svm._vote(machine, np.array([[1.0, -1.0, 1.0]]), np.array([[0.0, 0.0, 2.0]]))
    assert sure.tolist() == [False]
    # If class 0 wins both its pairs, the open pair does not matter.
    _, sure = svm._vote(machine, np.array([[1.0, 1.0, 1.0]]), np.array([[0.0, 0.0, 2.0]]))
    assert sure.tolist() == [True]


def test_constant_features_use_a_gamma_of_one():
    x, y = np.full((30, 4), 2.0), np.arange(30) % 3
    machine = svm.fit(x, y)
    assert machine.gamma == 1.0
    np.testing.assert_array_equal(svm.predict(machine, x), SVC().fit(x, y).predict(x))
