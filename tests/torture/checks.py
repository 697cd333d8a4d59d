"""The checks, in which order they run, which of them side by side, and what they need of a machine.

The module of a check has a function `run(folder, scale)`, which may be asynchronous: in an empty folder, at
a share of its full size, it returns what is wrong, and figures."""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import shutil
import tempfile
import time
import traceback
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import eigenveil_server  # noqa: F401 - before gRPC, which reads its settings when it is loaded
from tests.common.storage import cluster
from tests.torture.networks import nets


class Check(NamedTuple):
    folder: str
    number: int
    title: str


CHECKS = {
    "kills": Check("crashes", 1, "kill -9 at failpoints"), "power": Check("crashes", 2, "power cuts"),
    "disk_errors": Check("crashes", 2, "disk errors"),
    "upgrades": Check("crashes", 2, "power cuts of upgrades"),
    "beside_large": Check("crashes", 1, "beside a large study"),
    "checkpoints": Check("crashes", 2, "restored coordinator"),
    "charges": Check("crashes", 3, "two processes, one budget"),
    "certificates": Check("peers", 4, "bad certificates"),
    "calls": Check("peers", 5, "every call by every role"), "messages": Check("peers", 6, "mutated messages"),
    "http2": Check("front", 6, "malformed HTTP/2"), "exhaustion": Check("front", 6, "exhaustion"),
    "denial": Check("front", 6, "denial by one certificate"),
    "all_limits": Check("front", 6, "all limits at once"),
    "declined_floods": Check("front", 6, "declined floods"),
    "unread_replies": Check("front", 6, "unread replies"),
    "console_strangers": Check("front", 6, "console strangers"),
    "programs": Check("programs", 7, "random programs of faults"),
    "rehearsal": Check("programs", 7, "seven days of an upgrade"),
    "slow_loading": Check("programs", 7, "slow loading"),
    "long_run": Check("long", 7, "long run"),
    "long_run_postgresql": Check("long", 7, "long run on PostgreSQL"),
    "networks": Check("networks", 8, "bad networks"), "markers": Check("peers", 9, "patient markers"),
    "malicious": Check("peers", 10, "malicious coordinator"),
    "sets": Check("masked", 11, "malicious coordinator, masked"),
    "walk": Check("masked", 11, "walks through attempts"),
    "federation": Check("masked", 11, "masked federation"), "exact": Check("masked", 11, "exact answers"),
    "damaged_records": Check("records", 12, "damaged records"),
}  # fmt: skip
# They measure latency, which whatever runs beside them would change.
ALONE = ("damaged_records", *(name for name, one in CHECKS.items() if one.folder == "front"))
# The longest of the others, which begin first: else one of them would run on when all else is done.
LONGEST = (
    "long_run", "long_run_postgresql",
    "kills", "disk_errors", "programs", "rehearsal", "messages", "walk", "networks", "power", "sets",
    "malicious",
)  # fmt: skip
# Programs that are no part of every Debian, and the package that brings each.
SERVED = ("charges", "long_run_postgresql")  # they start a PostgreSQL server
PROGRAMS = {"networks": {"ip": "iproute2", "tc": "iproute2", "nft": "nftables"}}


def check(name: str, scale: float) -> tuple[str, bool, float]:
    """Run one check: its line, whether it passed, and the seconds that it took. One that ends in an error
    has failed, and no other misses its line."""
    one, start = CHECKS[name], time.monotonic()
    try:
        module = importlib.import_module(f"tests.torture.{one.folder}.{name}")
        with tempfile.TemporaryDirectory(prefix=f"eigenveil-{name}-") as folder:
            result = module.run(Path(folder), scale)
            faults, figures = asyncio.run(result) if asyncio.iscoroutine(result) else result
    except Exception as problem:  # noqa: BLE001 - whatever it is, it fails this check alone
        traceback.print_exc()
        faults, figures = [f"{type(problem).__name__}: {problem}"[:300]], ""
    detail = "; ".join(filter(None, [*faults[:5], figures]))
    line = f"{one.number:>2}  {'FAIL' if faults else 'ok  '}  {one.title:34} {detail}"
    return line, not faults, time.monotonic() - start


def run(names: Sequence[str], scale: float, jobs: int) -> Iterator[tuple[str, bool, float]]:
    """Run checks, each in a process of its own; the line of each, as it is done."""
    batches = [(list(names), 1)]
    if jobs > 1:
        rank = [*LONGEST, *CHECKS]
        others = sorted((name for name in names if name not in ALONE), key=rank.index)
        batches = [([name for name in names if name in ALONE], 1), (others, jobs)]
    for batch, at_once in batches:
        with ThreadPoolExecutor(at_once) as threads:
            for done in as_completed([threads.submit(_in_process, name, scale) for name in batch]):
                yield done.result()


def _in_process(name: str, scale: float) -> tuple[str, bool, float]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(check, name, scale).result()


def lacking(checks: Collection[str]) -> list[str]:
    """A sentence for each thing that one of `checks` needs and this machine lacks."""
    found = [
        f"{check} needs the program {program}; on Debian and Ubuntu: sudo apt install {package}"
        for check in checks
        for program, package in PROGRAMS.get(check, {}).items()
        if shutil.which(program) is None
    ]
    for name in SERVED:
        if name in checks and (why := cluster.missing()):
            found.append(f"{name}: {why}; on Debian and Ubuntu: sudo apt install postgresql util-linux")
    if "networks" in checks and not found:
        try:
            nets.probe()
        except nets.NotPermittedError as problem:
            found.append(f"networks: this machine does not let us make network namespaces: {problem}")
    return found
