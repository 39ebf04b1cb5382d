"""Helpers come, sleep, are woken, work for several leaders, and go with the process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import torch
from torch import nn

from snacs.runtime import fields as f
from snacs.runtime.lowering import lower, trace
from snacs.runtime.program import build
from snacs.runtime.running import Runner
from snacs.runtime.threads import HELPERS


def runner(*, images: int, threads: int, seed: int = 0) -> tuple[Runner, torch.Tensor]:
    torch.manual_seed(seed)
    layers = nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)
    x = torch.randn(images, 16, 8, 8)
    module = trace(nn.Sequential(*layers).eval())
    lowered = lower(module, x[:1])
    program = build(lowered, images=False, threads=threads)
    return Runner(module, lowered, program, images=images, threads=threads), x


def asleep(helper: int) -> bool:
    return bool(HELPERS.team(1)[f.ASLEEP + 8 * helper])


def test_helpers_fall_asleep_and_are_woken():
    run, x = runner(images=3, threads=2)
    expected = run(x).clone()
    for _ in range(3):
        until = time.monotonic() + 30
        while not asleep(1) and time.monotonic() < until:
            time.sleep(0.001)
        assert asleep(1)
        assert torch.equal(run(x), expected)
        assert all(torch.equal(run(x), expected) for _ in range(50))


def test_leaders_of_several_threads_do_not_disturb_each_other():
    runs = [runner(images=4 + seed, threads=2 + seed, seed=seed) for seed in range(3)]
    expected = [run(x).clone() for run, x in runs]
    wrong: list[int] = []

    def lead(index: int) -> None:
        run, x = runs[index]
        for _ in range(300):
            if not torch.equal(run(x), expected[index]):
                wrong.append(index)

    leaders = [threading.Thread(target=lead, args=(index,)) for index in range(3)]
    for leader in leaders:
        leader.start()
    for leader in leaders:
        leader.join()
    assert wrong == []


def test_runners_that_come_and_go_leave_nothing_behind():
    team = HELPERS.team(1)
    for seed in range(20):
        run, x = runner(images=1 + seed % 3, threads=2, seed=seed)
        first = run(x)
        assert torch.equal(run(x), first)
        del run
    assert team[f.ACTIVE] == team[f.OWNER] == 0
    assert team[f.BELL] % 2 == 0


def test_a_process_with_helpers_ends():
    code = (
        "import torch, snacs; torch.set_num_threads(2)\n"
        "net = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1))\n"
        "x = torch.randn(4, 8, 8, 8); fast = snacs.compile(net, x)\n"
        "print(fast(x).shape[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "4"
