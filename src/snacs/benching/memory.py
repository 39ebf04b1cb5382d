"""Peak memory of one contender, in a process of its own: ``python -m snacs.benching.memory``.

Prints the bytes that loading and running the network add to a process that has imported what it
needs: weights, buffers, and whatever the library takes beside.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch

_LIMIT = 600
"""Seconds after which a measurement is given up."""


def peak_bytes(kind: str, file: Path, shape: tuple[int, ...]) -> int | None:
    """Run a contender once or twice in a fresh process; None where memory cannot be read."""
    if not Path("/proc/self/status").exists():
        return None
    facts = {"kind": kind, "file": str(file), "shape": shape, "threads": torch.get_num_threads()}
    command = [sys.executable, "-m", "snacs.benching.memory", json.dumps(facts)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=False)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else None


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def main(text: str) -> int:
    """Load, run, and say how much more memory there was at the peak."""
    facts = json.loads(text)
    torch.set_num_threads(facts["threads"])
    torch.set_grad_enabled(False)
    from snacs.artifact import load
    from snacs.benching.contenders import session
    from snacs.runtime.compiled import compile as compile_network

    tiny = torch.nn.Conv2d(1, 1, 1).eval()
    tiny(torch.zeros(1, 1, 2, 2))
    if facts["kind"] == "sparse":
        compile_network(tiny, torch.zeros(1, 1, 2, 2))  # the compiler's own memory is not ours
    before = _resident("VmRSS")
    x = torch.zeros(*facts["shape"])
    if facts["kind"] == "onnx":
        call = session(Path(facts["file"]))
        call(x)
        call(x)
    else:
        model = load(facts["file"]).eval()
        run = compile_network(model, x) if facts["kind"] == "sparse" else model
        run(x)
        run(x)
    sys.stdout.write(str(max(0, _resident("VmHWM") - before)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
