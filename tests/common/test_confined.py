"""What a process may no longer do that has confined itself, and that it is confined or says why not."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from eigenveil_common import process_limits

CLONE3 = 435  # how glibc starts a thread first
CORES = os.sched_getaffinity(0)


def behind(
    folder: Path, tries: dict[str, Callable[[], Any]], folders: Sequence[Path] | None = None
) -> list[str]:
    """Which of `tries` the system does not refuse a fork of ours that is confined to `folder`; "not confined"
    first if it says so."""
    found = folder / "found"
    pid = os.fork()
    if not pid:
        try:
            process_limits.limit_resources(memory=2**40, seconds=60)
            with found.open("w") as out:
                try:
                    process_limits.restrict_process(
                        network=False, folders=[folder] if folders is None else folders
                    )
                except OSError as problem:
                    out.write(f"not confined: {problem.filename}\n")
                for name, one in tries.items():
                    try:
                        one()
                    except PermissionError:
                        continue
                    except Exception as problem:  # noqa: BLE001 - is told by the test
                        name = f"{name}: {problem!r}"
                    out.write(f"{name}\n")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return found.read_text().splitlines()


def forked() -> None:
    if not os.fork():
        os._exit(0)


def limits(pid: int) -> None:
    """Set a limit of a process to what it is."""
    resource.prlimit(pid, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))


def in_a_thread() -> None:
    done = threading.Event()
    threading.Thread(target=done.set).start()
    assert done.wait(10)


def of_clone3() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.syscall(CLONE3, None, 0) == -1
    assert ctypes.get_errno() == errno.ENOSYS


def test_no_other_process_is_made_or_touched(tmp_path: Path) -> None:
    parent = os.getpid()
    tries: dict[str, Callable[[], Any]] = {
        "fork": forked,
        "limits": lambda: limits(parent),
        "cores": lambda: os.sched_setaffinity(parent, CORES),
        "rank": lambda: os.setpriority(os.PRIO_PROCESS, parent, os.getpriority(os.PRIO_PROCESS, parent)),
        "signal": lambda: os.kill(parent, 0),
    }
    assert behind(tmp_path, tries) == []


def test_its_own_limits_and_threads_are_its_own(tmp_path: Path) -> None:
    tries: dict[str, Callable[[], Any]] = {
        "limits": lambda: limits(0),
        "by number": lambda: limits(os.getpid()),
        "cores": lambda: os.sched_setaffinity(0, CORES),
        "threads": in_a_thread,
        "clone3": of_clone3,
        "write": lambda: (tmp_path / "more").write_text("x"),
        "null": lambda: Path("/dev/null").write_bytes(b"x"),
    }
    assert behind(tmp_path, tries) == list(tries)


def test_a_kernel_without_one_limit_sets_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_limits, "CREATE", 1_000)  # no call of this number
    outside = tmp_path / "outside"
    outside.mkdir()
    tries: dict[str, Callable[[], Any]] = {
        "network": socket.socket,
        "write": lambda: (outside / "x").write_text("x"),
    }
    (tmp_path / "inside").mkdir()
    assert behind(tmp_path / "inside", tries) == ["write"]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert behind(tmp_path, {}, [missing]) == [f"not confined: {missing}"]


def test_a_limit_that_the_kernel_knows_and_refuses_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_limits, "_seccomp_filter", lambda *given, **named: [(0xFFFF, 0, 0, 0)])
    assert behind(tmp_path, {}) == ["not confined: None"]
