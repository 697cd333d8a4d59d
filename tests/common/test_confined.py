"""Limits of a confined process, memory of a daemon, and messages about missing libraries."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from eigenveil_common import process_limits
from tests.repo.tree import ROOT
from tests.support import Patch

CLONE3 = 435  # how glibc starts a thread first
CORES = os.sched_getaffinity(0)


def behind(
    folder: Path, tries: dict[str, Callable[[], Any]], folders: Sequence[Path] | None = None
) -> list[str]:
    """Names in `tries` that the system does not refuse a fork confined to `folder`; first "not confined" if
    it is not."""
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
    resource.prlimit(pid, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))


def in_a_thread() -> None:
    done = threading.Event()
    threading.Thread(target=done.set).start()
    assert done.wait(10)


def of_clone3() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert (libc.syscall(CLONE3, None, 0), ctypes.get_errno()) == (-1, errno.ENOSYS)


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


def test_a_confined_process_may_set_its_own_limits_and_start_threads(tmp_path: Path) -> None:
    tries: dict[str, Callable[[], Any]] = {
        "limits": lambda: limits(0), "by number": lambda: limits(os.getpid()),
        "cores": lambda: os.sched_setaffinity(0, CORES), "threads": in_a_thread, "clone3": of_clone3,
        "write": lambda: (tmp_path / "more").write_text("x"),
        "null": lambda: Path("/dev/null").write_bytes(b"x"),
    }  # fmt: skip
    assert behind(tmp_path, tries) == list(tries)


def test_a_kernel_without_one_limit_sets_the_others(tmp_path: Path, monkeypatch: Patch) -> None:
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


def test_a_limit_that_the_kernel_refuses_is_an_error(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(process_limits, "_seccomp_filter", lambda *given, **named: [(0xFFFF, 0, 0, 0)])
    assert behind(tmp_path, {}) == ["not confined: None"]


# Memory of a daemon.


FREED = """
from eigenveil_common.process_limits import release_free_memory, resident_bytes, reuse_buffers

reuse_buffers()
before, messages = resident_bytes(), [b"x" * (3 * 2**20 + i) for i in range(10)]
small = [bytes(1000 + i) for i in range(2000)]
del messages
kept = resident_bytes() - before
release_free_memory()
print(kept // 2**20, (resident_bytes() - before) // 2**20)
"""


def test_message_buffers_are_reused_until_released() -> None:
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    remaining, left = map(int, done.stdout.split())
    assert remaining >= 25  # MiB
    assert left <= 10


THREADS = """
import ctypes, resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Lock
from eigenveil_common.process_limits import reuse_buffers, resident_bytes

reuse_buffers()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
together, alone, before = Barrier(12), Lock(), resident_bytes()

def use(number):
    together.wait()
    with alone:
        pieces = [libc.malloc(2**20) for _ in range(24)]
        for piece in pieces:
            ctypes.memset(piece, 1, 2**20)
        for piece in pieces[::-1]:
            libc.free(piece)
    together.wait()

with ThreadPoolExecutor(12) as threads:
    list(threads.map(use, range(12)))
    print((resident_bytes() - before) // 2**20)
"""


def test_freed_memory_is_retained_for_few_threads() -> None:
    """12 threads that used 24 MiB each in turn: 288 MiB, where each thread has a heap of its own."""
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 96


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ANALYST = "eigenveil_client.cli"
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def without(library: str, folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code, and the processes that it starts, as if a library were not installed."""
    (folder / "sitecustomize.py").write_text(f"import sys; sys.modules[{library!r}] = None")
    command, env = [sys.executable, "-c", code], os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize(
    ("library", "distribution", "module", "words", "extra"),
    [
        ("pyarrow", "pyarrow", ANALYST, "simulate deploy/config/study.example.toml --data x.csv", "analyst"),
        ("matplotlib", "matplotlib", ANALYST, "report release.zip", "analyst"),
        ("grpc", "grpcio", ANALYST, "study list", "analyst"),
        ("grpc", "grpcio", "eigenveil_client.site.commands.main", "enrol --config s --join j", "site"),
        ("grpc", "grpcio", ANALYST, "demo --out {new}", "analyst,coordinator,site"),
        ("apsw", "apsw", "eigenveil_server.cli", "init --dir {new} --federation a", "coordinator"),
    ],
)  # fmt: skip
def test_a_missing_library_names_its_extra(
    library: str, distribution: str, module: str, words: str, extra: str, tmp_path: Path
) -> None:
    argv = ["program", *words.format(new=f"{tmp_path}/new").split(), "--json"]
    start = f"import sys; sys.argv = {argv}; from {module} import main; sys.exit(main())"
    done = without(library, tmp_path, start)
    assert done.returncode == 4, done.stderr
    message = json.loads(done.stdout)["message"]
    assert f"this needs {library}, which is not installed" in message
    assert f"{sys.executable} -m pip install 'eigenveil[{extra}]'" in message
    assert all(distribution in {Requirement(line).name for line in EXTRAS[one]} for one in extra.split(","))


def test_only_estimators_need_scikit_learn(tmp_path: Path) -> None:
    start = "import eigenveil; eigenveil.simulate, eigenveil.explain"
    assert without("sklearn", tmp_path, start).returncode == 0
    done = without("sklearn", tmp_path, "from eigenveil import PrivatePCA")
    assert done.stderr.splitlines()[-1].endswith("pip install 'eigenveil[estimators]'")
