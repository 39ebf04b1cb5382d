"""The order in which connections go, and the floor."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from snacs.connections import count_at, most_prunable, prune_order


@given(st.integers(1, 10**7))
def test_one_percent_and_one_connection_stay(connections):
    left = connections - most_prunable(connections)
    assert left >= 1
    assert left >= connections / 100
    assert left - 1 < connections / 100 or left == 1


@given(st.integers(1, 99), st.integers(1, 10**7))
def test_levels_in_percent_count_exactly(level, connections):
    assert count_at(level / 100, connections) == level * connections // 100


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000))
def test_order_is_by_score_then_index_without_protected_rows(seed):
    rng = np.random.default_rng(seed)
    scores = np.round(rng.random((5, 4)), 1)
    rows = rng.random(5) < 0.3
    expected = sorted((scores[i, j], i * 4 + j) for i in range(5) for j in range(4) if not rows[i])
    assert prune_order(scores, rows).tolist() == [index for _, index in expected]
