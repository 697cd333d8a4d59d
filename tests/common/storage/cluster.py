"""A PostgreSQL server of our own: a temporary cluster, reached by a socket in its folder alone."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

USERS = ("postgres", "nobody")  # the server refuses to run as root
INIT = ("-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
START_SECONDS = 60.0


class Cluster:
    """A running server; `database` makes an empty database and gives its URL."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()

    def url(self, name: str) -> str:
        return f"postgresql:///{name}?host={self._folder}&user=tester"

    def database(self) -> str:
        name = f"t{os.getpid()}_{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)


def missing() -> str:
    """Reason that no server can run; empty if one can."""
    if binaries() is None:
        return "PostgreSQL is not installed: neither initdb on PATH nor /usr/lib/postgresql/*/bin"
    if shutil.which("setpriv") is None:
        return "setpriv (util-linux) is not installed, which ends the server with the tests"
    if os.geteuid() == 0 and _user() is None:
        return f"PostgreSQL does not run as root, and there is no user {' or '.join(USERS)}"
    return ""


def binaries() -> Path | None:
    found = shutil.which("initdb")
    slots = [Path(found).resolve().parent] if found else []
    slots += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in slots if (place / "postgres").exists()), None)


def _user() -> pwd.struct_passwd | None:
    for name in USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


@contextmanager
def running() -> Iterator[Cluster]:
    """A cluster that is gone afterwards, or when the tests are killed."""
    folder = Path(tempfile.mkdtemp(prefix="ev-pg-"))
    try:
        yield from _serving(folder, _unprivileged(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged(folder: Path) -> list[str | Path]:
    """Prefix of a command. A program of its own changes the user: done in a fork of a process with threads of
    gRPC, it would run their handlers."""
    line: list[str | Path] = ["setpriv", "--pdeathsig", "QUIT"]
    user = _user() if os.geteuid() == 0 else None
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
        line += ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
    return line


def _serving(folder: Path, prefix: list[str | Path]) -> Iterator[Cluster]:
    place, data = binaries(), folder / "data"
    assert place is not None
    subprocess.run(
        [*prefix, place / "initdb", "-D", data, *INIT],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*prefix, place / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses="],
            cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
    cluster = Cluster(folder)
    try:
        _wait(cluster, server, folder / "log")
        yield cluster
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait()


def _wait(cluster: Cluster, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(cluster.url("postgres")).close()
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the server did not start: {log.read_text()}") from None
            time.sleep(0.05)
        else:
            return
