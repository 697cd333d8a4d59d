"""The checks, in which order they run, and which of them side by side."""

from __future__ import annotations

import importlib
import multiprocessing
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed

import eigenveil_server  # noqa: F401 - before gRPC, which reads its settings when it is loaded
from tests.torture.line import Line

CHECKS = {  # each in its room
    "kills": "crashes",
    "power": "crashes",
    "disk_errors": "crashes",
    "checkpoints": "crashes",
    "charges": "crashes",
    "certificates": "peers",
    "calls": "peers",
    "messages": "peers",
    "http2": "front",
    "exhaustion": "front",
    "denial": "front",
    "all_limits": "front",
    "declined_floods": "front",
    "unread_replies": "front",
    "console_strangers": "front",
    "programs": "programs",
    "networks": "networks",
    "markers": "peers",
    "malicious": "peers",
    "sets": "masked",
    "walk": "masked",
    "federation": "masked",
    "exact": "masked",
    "damaged_records": "records",
}
# They measure latency, which whatever runs beside them would change.
ALONE = (
    "http2", "exhaustion", "denial", "all_limits", "declined_floods", "unread_replies", "console_strangers",
    "damaged_records",
)  # fmt: skip
# The longest of the others, which begin first: else one of them would run on when all else is done.
LONGEST = ("kills", "disk_errors", "programs", "messages", "walk", "networks", "power", "sets", "malicious")


def batches(names: Sequence[str], jobs: int) -> list[tuple[list[str], int]]:
    """The checks in their order, as pairs (checks, how many of them at once)."""
    if jobs == 1:
        return [(list(names), 1)]
    rank = {name: place for place, name in enumerate((*LONGEST, *CHECKS)[::-1])}
    others = sorted((name for name in names if name not in ALONE), key=lambda name: -rank[name])
    return [([name for name in names if name in ALONE], 1), (others, jobs)]


def check(name: str, scale: float) -> tuple[Line, float]:
    """Run one check: its line, and the seconds that it took. One that ends in an error has failed, and keeps
    no other from its line."""
    start = time.monotonic()
    try:
        line: Line = importlib.import_module(f"tests.torture.{CHECKS[name]}.{name}").run(scale)
    except Exception as problem:  # noqa: BLE001 - whatever it is, it fails this check alone
        traceback.print_exc()
        line = Line(number=0, title=name, passed=False, detail=f"{type(problem).__name__}: {problem}"[:300])
    return line, time.monotonic() - start


def run(names: Sequence[str], scale: float, jobs: int) -> Iterator[tuple[Line, float]]:
    """Run checks, each in a process of its own; what each found, as it is done."""
    for batch, at_once in batches(names, jobs):
        with ThreadPoolExecutor(at_once) as threads:
            for done in as_completed([threads.submit(_apart, name, scale) for name in batch]):
                yield done.result()


def _apart(name: str, scale: float) -> tuple[Line, float]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(check, name, scale).result()
