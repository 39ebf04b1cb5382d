"""Errors that a user can act on.

Every error says what was wrong, where, what was expected and what to do. All derive from
:class:`SnacsError`, so ``except snacs.SnacsError`` catches what this library raises on purpose;
anything else that escapes is a bug of ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SnacsError(Exception):
    """Base class of every error that snacs raises on purpose."""


class InputError(SnacsError, ValueError):
    """An argument, a batch, a label, a weight or a file from the user cannot be used."""


class TargetError(InputError):
    """The requested size cannot be reached; the message says how far one can go and why."""


class ModelError(SnacsError, RuntimeError):
    """The network itself failed: its forward raised, or its output cannot be read."""


class RunFolderError(SnacsError, RuntimeError):
    """A run folder is foreign, damaged, locked by another process or cannot be written."""


class WorkerError(SnacsError, RuntimeError):
    """A worker process died; what other workers had finished is kept in the run folder."""


def closest(word: str, words: Iterable[str], *, most: int = 3, alike: float = 0.6) -> str:
    """A hint to put behind a message about an unknown word, or nothing.

    >>> closest("unifrom", ["uniform", "global"])
    " Did you mean 'uniform'?"
    """
    close = difflib.get_close_matches(word, sorted(words), n=most, cutoff=alike)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
