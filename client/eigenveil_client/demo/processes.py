"""The demonstration's operating-system processes: started, awaited, and never left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.errors import Code, EigenveilError, InternalError, error
from eigenveil_client.demo import leash

MODULES = {
    "eigenveil": "eigenveil_client.cli",
    "eigenveil-coordinator": "eigenveil_server.cli",
    "eigenveil-site": "eigenveil_client.site.commands.main",
}
COMMAND_SECONDS = 60.0
STOP_SECONDS = 5.0
GLANCE_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One running command. Its standard output and error are `name`.out and `name`.log in the logs."""

    name: str
    process: subprocess.Popen[bytes]
    out: Path
    log: Path


def command_line(program: str) -> list[str]:
    """How to start one of our commands: the script beside this Python, or its module."""
    script = Path(sys.executable).parent / program
    return [str(script)] if script.exists() else [sys.executable, "-m", MODULES[program]]


def _leashed() -> list[str]:
    """What ends a command when the demonstration is killed outright."""
    return [sys.executable, "-I", "-S", leash.__file__, str(os.getpid())]


class Processes:
    """Everything one demonstration started. `stop` ends all of it.

    Use from the main thread only: a child ends with the thread that started it.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._jobs: list[Job] = []
        # Four processes on two cores: more BLAS threads only get in each other's way.
        self._environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **os.environ}

    def start(self, name: str, program: str, *arguments: str | Path) -> Job:
        """Start a command in a session of its own, so that Ctrl-C reaches the demonstration only."""
        out, log = self._logs / f"{name}.out", self._logs / f"{name}.log"
        with out.open("wb") as output, log.open("ab") as problems:
            process = subprocess.Popen(
                [*_leashed(), *self.command(name, program, *arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=problems,
                env=self._environment,
                start_new_session=True,
            )
        job = Job(name=name, process=process, out=out, log=log)
        self._jobs.append(job)
        return job

    def command(self, name: str, program: str, *arguments: str | Path) -> list[str]:
        """What to run as the job `name`."""
        return [*command_line(program), *map(str, arguments)]

    def finish(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        """Wait for commands to end well; the JSON object each printed last.

        Raises:
            EigenveilError: the command's own error, naming its log.
        """
        deadline = time.monotonic() + COMMAND_SECONDS
        for job in jobs:
            try:
                job.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired as problem:
                raise InternalError(
                    Code.BUG, f"{job.name} did not end within {COMMAND_SECONDS:.0f} s; see {job.log}"
                ) from problem
            self._jobs.remove(job)
            if job.process.returncode != 0:
                raise failure(job)
        return [_last_object(job) for job in jobs]

    def ready(self, jobs: Sequence[Job]) -> None:
        """Wait until each daemon has printed the line that says it serves.

        Raises:
            EigenveilError: a daemon ended, or took too long.
        """
        deadline = time.monotonic() + COMMAND_SECONDS
        for job in jobs:
            while b"\n" not in job.out.read_bytes():
                self.check([job])
                if time.monotonic() > deadline:
                    raise InternalError(
                        Code.BUG, f"{job.name} did not serve within {COMMAND_SECONDS:.0f} s; see {job.log}"
                    )
                time.sleep(GLANCE_SECONDS)

    def check(self, daemons: Sequence[Job]) -> None:
        """Raise the error of any of `daemons` that has ended."""
        for job in daemons:
            if job.process.poll() is not None:
                raise failure(job)

    def kill(self, job: Job) -> None:
        """kill -9, and wait for the end."""
        job.process.kill()
        job.process.wait()
        self._jobs.remove(job)

    def stop(self) -> None:
        """End everything, the latest first: ask, then insist."""
        for job in reversed(self._jobs):
            if job.process.poll() is None:
                job.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for job in reversed(self._jobs):
            try:
                job.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()
        self._jobs.clear()


def failure(job: Job) -> EigenveilError:
    """The error of a command that ended badly, with where to read more."""
    where = f"its log is {job.log}"
    try:
        told = _last_object(job)
        return error(Code(told["error"]), f"{job.name}: {told['message']} ({where})")
    except (ValueError, KeyError):
        lines = job.log.read_text(errors="replace").strip().splitlines()
        last = lines[-1] if lines else "no message"
        return InternalError(Code.BUG, f"{job.name} ended with {job.process.returncode}: {last} ({where})")


def _last_object(job: Job) -> dict[str, Any]:
    lines = job.out.read_text().strip().splitlines()
    value = json.loads(lines[-1]) if lines else {}
    if not isinstance(value, dict):
        raise ValueError(f"{job.name} printed no JSON object")
    return value
