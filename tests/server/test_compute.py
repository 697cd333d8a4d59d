"""Limits of the coordinator's process while it computes beside its event loop."""

from __future__ import annotations

import sys

from threadpoolctl import threadpool_info

from eigenveil_server.process import SWITCH_SECONDS, Compute


def limits() -> tuple[float, list[int]]:
    """The seconds that a thread may run Python, and the threads of each BLAS library."""
    return sys.getswitchinterval(), [one["num_threads"] for one in threadpool_info()]


def test_no_thread_holds_interpreter_or_processors_until_the_pools_are_closed() -> None:
    before = limits()
    compute = Compute()
    seconds, threads = limits()
    compute.close()
    assert seconds <= SWITCH_SECONDS * 1.001 < before[0]
    assert set(threads) == {1}
    assert limits() == before
