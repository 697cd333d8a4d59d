"""Limits of a coordinator's process, so that its event loop is not delayed by what it computes beside it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

import pytest
from threadpoolctl import threadpool_info

from eigenveil_common import log
from eigenveil_common.concurrency import CORES
from eigenveil_server import daemon
from eigenveil_server.config import Config
from eigenveil_server.process import (
    ARITHMETIC_THREADS,
    CHECK_THREADS,
    CHECKS,
    SWITCH_SECONDS,
    Compute,
    short_turns,
)


def limits() -> tuple[float, list[int]]:
    """The seconds that a thread may run Python, and the threads of each BLAS library."""
    return sys.getswitchinterval(), [one["num_threads"] for one in threadpool_info()]


def test_threads_have_short_turns_and_linear_algebra_one_thread_until_the_end() -> None:
    before = limits()
    with short_turns():
        seconds, threads = limits()
    assert seconds <= SWITCH_SECONDS * 1.001 < before[0]
    assert set(threads) == {1}
    assert limits() == before


def test_pools_of_one_process_change_no_limit_of_the_others() -> None:
    """They were set and restored by each: the first that closed ended the limits of the second."""
    before = limits()
    first, second = Compute(), Compute()
    assert limits() == before
    first.close()
    second.close()


def test_uploads_are_checked_in_turn_and_other_work_goes_on() -> None:
    """The checks of several at once would take all cores from the event loop."""
    started, go, compute = Semaphore(0), Event(), Compute()

    def check() -> None:
        started.release()
        assert go.wait(60)

    async def scenario() -> None:
        checks = [asyncio.ensure_future(compute.check(check)) for _ in range(CHECKS + 2)]
        for _ in range(CHECKS):
            await asyncio.to_thread(started.acquire)
        assert await asyncio.gather(*(compute.run(sum, (1, 2)) for _ in range(ARITHMETIC_THREADS))) == [3] * 4
        assert not started.acquire(timeout=0.1)
        go.set()
        await asyncio.gather(*checks)

    assert 1 <= CHECKS * CHECK_THREADS <= max(CHECK_THREADS, CORES - 1)
    asyncio.run(scenario())
    compute.close()


def test_a_coordinator_serves_within_these_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[tuple[float, list[int]]]()

    def serve(work: Coroutine[Any, Any, None]) -> None:
        work.close()
        seen.append(limits())

    def end(_: int) -> None:
        raise SystemExit

    for name in ("forbid_core_dumps", "raise_file_limit", "reuse_buffers"):  # of this process
        monkeypatch.setattr(daemon, name, lambda: None)
    monkeypatch.setattr(log, "to_stderr", lambda _: None)
    monkeypatch.setattr(asyncio, "run", serve)
    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(SystemExit):
        daemon.serve_until_stopped(Config(federation="f", state=tmp_path))
    ((seconds, threads),) = seen
    assert seconds <= SWITCH_SECONDS * 1.001
    assert set(threads) == {1}
