"""`python -m tests.torture.memory --times 20 [--loaded]`: how memory grows in each check that limits it.

Every check runs so many times, each time on a new process; `--loaded` beside one busy process for each core.
A line each: the least, the median and the most growth, and the limit. The exit code says whether all held.
At full scale one round takes some 15 minutes, nearly all of it for `messages` and `http2`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import eigenveil_server  # noqa: F401 - before gRPC, which reads its settings when it is loaded
from tests.torture.front import exhaustion, http2
from tests.torture.line import Line
from tests.torture.peers import messages

MIB = 2**20


def _attack(name: str) -> Callable[[float], Line]:
    def run(scale: float) -> Line:
        with tempfile.TemporaryDirectory() as folder:
            attack = {name: exhaustion.ATTACKS[name]}
            return asyncio.run(exhaustion.besiege(Path(folder), attack, scale))

    return run


CHECKS: dict[str, Callable[[float], Line]] = {
    **{name: _attack(name) for name in exhaustion.ATTACKS},
    "http2": http2.run,
    "messages": messages.run,
}


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that do nothing but keep a core busy."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def measure(name: str, times: int, scale: float) -> bool:
    """Run one check so many times and print its line; whether its limit held each time."""
    began = time.monotonic()
    lines = [CHECKS[name](scale) for _ in range(times)]
    grown = [line.growth / MIB for line in lines]
    most = lines[0].most_growth / MIB
    print(
        f"{name:24} {times} times: +{min(grown):.1f}, +{statistics.median(grown):.1f}, +{max(grown):.1f} MiB"
        f" (least, median, most), limit {most:.1f} MiB  [{time.monotonic() - began:.0f} s]",
        flush=True,
    )
    return max(grown) < most


def main() -> int:
    """Measure the checks, or those named by --only."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.memory", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=tuple(CHECKS), metavar="NAME")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--scale", type=float, default=1.0, help="1 is what is promised")
    parser.add_argument("--loaded", action="store_true", help="beside a busy process for each core")
    chosen = parser.parse_args()
    with busy(os.cpu_count() or 1 if chosen.loaded else 0):
        held = [measure(name, chosen.times, chosen.scale) for name in chosen.only]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
