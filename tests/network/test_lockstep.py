"""Threads that run one at a time, and always end."""

from __future__ import annotations

import threading

import pytest

from snacs.network.lockstep import Worker, closing, pause


def alive() -> int:
    return sum(thread.name == "snacs-lockstep" for thread in threading.enumerate())


def test_workers_run_from_stop_to_stop_in_turn():
    log = []

    def job(name):
        for step in range(2):
            log.append((name, step))
            pause(f"stop {step}", name)
        return name.upper()

    workers = [Worker(lambda name=name: job(name)) for name in "ab"]
    with closing(workers):
        first = [worker.advance() for worker in workers]
        assert [(stop.key, stop.payload) for stop in first] == [("stop 0", "a"), ("stop 0", "b")]
        assert log == [("a", 0), ("b", 0)]
        assert [worker.advance().key for worker in workers] == ["stop 1", "stop 1"]
        assert [worker.advance() for worker in workers] == [None, None]
        assert workers[0].advance() is None
    assert [worker.result for worker in workers] == ["A", "B"]
    assert alive() == 0


def test_an_error_comes_out_as_itself_and_all_threads_end():
    error = ValueError("mine")

    def bad():
        pause("here", None)
        raise error

    workers = [Worker(lambda: pause("here", None)), Worker(bad), Worker(lambda: None)]
    with closing(workers):
        workers[0].advance()
        workers[1].advance()
        with pytest.raises(ValueError, match="mine") as caught:
            workers[1].advance()
    assert caught.value is error
    assert alive() == 0


def test_an_interrupt_of_the_driver_ends_held_threads_even_those_that_swallow_exceptions():
    ran_on = []

    def stubborn():
        try:
            pause("here", None)
        except Exception:  # a forward pass with a broad except
            ran_on.append(True)

    workers = [Worker(stubborn), Worker(stubborn)]

    def drive():
        with closing(workers):
            workers[0].advance()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive()
    assert ran_on == []
    assert alive() == 0


def test_an_error_at_the_very_end_is_raised_too():
    def job():
        raise RuntimeError("at once")

    worker = Worker(job)
    with closing([worker]), pytest.raises(RuntimeError, match="at once"):
        worker.advance()
    assert alive() == 0


def test_pause_outside_a_worker_is_refused():
    with pytest.raises(RuntimeError, match="outside"):
        pause("here", None)
