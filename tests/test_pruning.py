"""What retraining shows while it runs."""

from snacs.pruning import epochs_watch
from snacs.training import ProgressRow


def _row(epoch, batch, batches):
    return ProgressRow(epoch, 2, batch, batches, 0.5, 0.9, None, None)


def _shown(rows):
    seen = []
    watch = epochs_watch(lambda stage, done, total, detail="": seen.append((done, total)), "train")
    for row in rows:
        watch(row)
    return seen


def test_batches_are_counted_through_all_epochs():
    rows = [_row(1, 1, 2), _row(1, 2, 2), _row(2, 1, 2), _row(2, 2, 2)]
    assert _shown(rows) == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_it_never_goes_back_where_epochs_differ_in_length():
    rows = [_row(1, 1, 3), _row(1, 3, 3), _row(2, 1, 2), _row(2, 2, 2)]
    assert _shown(rows) == [(1, 6), (3, 6), (4, 6), (6, 6)]
    rows = [_row(1, 2, 2), _row(2, 1, 3), _row(2, 3, 3)]
    assert _shown(rows) == [(2, 4), (4, 6), (6, 6)]


def test_epochs_are_counted_where_batches_cannot_be():
    assert _shown([_row(1, 7, None), _row(2, 7, None)]) == [(1, 2), (2, 2)]
