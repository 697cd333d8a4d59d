"""Processes of our own beside a daemon or a command: they may be killed, and know none of its secrets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

# So that processor time is the same on every machine: more threads of BLAS wait by computing.
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
SECRET = "PG"  # how the database's names begin, its password's among them
PIPE, NOWHERE = subprocess.PIPE, subprocess.DEVNULL


def apart(
    module: str,
    *,
    stdin: int = PIPE,
    stdout: int = PIPE,
    stderr: int | None = None,
    settings: Mapping[str, str] = ONE_THREAD,
) -> subprocess.Popen[bytes]:
    """A process of its own that runs `module`, knows none of our secrets and is spoken to through pipes, or
    through the descriptor that is its standard input. `settings` are added to its environment."""
    return subprocess.Popen(
        # -P: nothing is loaded from the folder in which somebody happened to start us.
        [sys.executable, "-P", "-m", module],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env={name: value for name, value in os.environ.items() if not name.startswith(SECRET)}
        | dict(settings),
    )


def ended(process: subprocess.Popen[bytes]) -> None:
    """End it, and give back what the system keeps of it."""
    process.kill()
    with suppress(BrokenPipeError):
        process.communicate()
