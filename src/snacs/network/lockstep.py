"""Forward passes that stop at the same places and wait for each other.

Repair needs, layer after layer, what all images show at that layer in a network whose earlier
layers are repaired already. Instead of rerunning the network from its start for every layer, each
batch's forward pass runs in a thread of its own that is held at every stop. Only one thread runs at
a time, so nothing races; torch's own threads do the parallel work inside an operator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_local = threading.local()


@dataclass(frozen=True, eq=False)
class Stop:
    """Where a worker stopped, and what it shows there."""

    key: str
    payload: Any


class _Released(BaseException):
    """Ends a held worker; not an Exception, so that no forward pass can swallow it."""


class Worker:
    """One function in its own thread, run from :func:`pause` to :func:`pause` by :meth:`advance`.

    >>> worker = Worker(lambda: pause("here", 1) or 2)
    >>> with closing([worker]):
    ...     worker.advance().key, worker.advance(), worker.result
    ('here', None, 2)
    """

    def __init__(self, job: Callable[[], Any]) -> None:
        self.result: Any = None
        self._job = job
        self._stop: Stop | None = None
        self._error: BaseException | None = None
        self._done = False
        self._released = False
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="snacs-lockstep", daemon=True)

    def advance(self) -> Stop | None:
        """Run to the next stop, or to the end: None. An error of the job is raised here."""
        if self._done:
            return None
        if self._thread.ident is None:
            self._thread.start()
        self._stop = None  # lets go of the tensors of the last stop
        self._go.release()
        self._back.acquire()
        if self._error is not None:
            raise self._error
        return self._stop

    def close(self) -> None:
        """Release the thread wherever it is held and wait for its end."""
        self._released = True
        self._stop = None
        if self._thread.ident is not None:
            self._go.release()
            self._thread.join()
        self._done = True

    def hold(self, stop: Stop) -> None:
        """Called by the thread itself: show a stop and wait."""
        if not self._released:
            self._stop = stop
            self._back.release()
            self._go.acquire()
        if self._released:
            raise _Released

    def _run(self) -> None:
        _local.worker = self
        self._go.acquire()
        try:
            if not self._released:
                self.result = self._job()
        except _Released:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._done = True
            self._back.release()


def pause(key: str, payload: Any) -> None:
    """Stop the worker that runs this code until its next ``advance``."""
    worker: Worker | None = getattr(_local, "worker", None)
    if worker is None:
        raise RuntimeError("pause() was called outside a lockstep worker")
    worker.hold(Stop(key, payload))


@contextmanager
def closing(workers: Sequence[Worker]) -> Iterator[None]:
    """Whatever happens inside, every thread has ended after it."""
    try:
        yield
    finally:
        for worker in workers:
            worker.close()
