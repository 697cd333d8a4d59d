"""The demonstration's operating-system processes: started, awaited, and never left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from eigenveil.errors import Code, EigenveilError, InternalError, error
from eigenveil_client.demo import leash

MODULES = {
    "eigenveil": "eigenveil_client.cli",
    "eigenveil-coordinator": "eigenveil_server.cli",
    "eigenveil-site": "eigenveil_client.site.commands.main",
}
# What most commands of a program need, and its shell may load while nobody asks anything of it.
LOADED = {
    "eigenveil": "eigenveil_client.analyst.studies",
    "eigenveil-coordinator": "eigenveil_server.admin.setup",
    "eigenveil-site": "eigenveil_client.site.commands.consent",
}
COMMAND_SECONDS = 60.0
STOP_SECONDS = 5.0
GLANCE_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One running program. Its standard output and error are `name`.out and `name`.log in the logs."""

    name: str
    process: subprocess.Popen[bytes]
    out: Path
    log: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A command that a shell was asked for, as its `number`th; `out` and `log` are the command's own."""

    name: str
    shell: Job
    number: int
    out: Path
    log: Path

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self.shell.process


One = TypeVar("One", Job, Task)


def command_line(program: str) -> list[str]:
    """How to start one of our commands: the script beside this Python, or its module."""
    script = Path(sys.executable).parent / program
    return [str(script)] if script.exists() else [sys.executable, "-m", MODULES[program]]


def _leashed() -> list[str]:
    """What ends a command when the demonstration is killed outright."""
    return [sys.executable, "-I", "-S", leash.__file__, str(os.getpid())]


class Processes:
    """Everything one demonstration started. `stop` ends all of it.

    Daemons have processes of their own; other commands share one, a shell, with all of the same program.
    Use from the main thread only: a child ends with the thread that started it.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._jobs: list[Job] = []
        self._shells: dict[str, Job] = {}
        self._asked: dict[str, int] = {}
        # Four processes on two cores: more BLAS threads only get in each other's way.
        self._environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **os.environ}

    def start(self, name: str, program: str, *arguments: str | Path) -> Job:
        """Start a daemon."""
        return self._start(name, self.command(name, program, *arguments), subprocess.DEVNULL)

    def command(self, name: str, program: str, *arguments: str | Path) -> list[str]:
        """What to run as the daemon `name`."""
        return [*command_line(program), *map(str, arguments)]

    def _start(self, name: str, command: list[str], stdin: int) -> Job:
        """In a session of its own, so that Ctrl-C reaches the demonstration only."""
        out, log = self._logs / f"{name}.out", self._logs / f"{name}.log"
        with out.open("wb") as output, log.open("ab") as problems:
            process = subprocess.Popen(
                [*_leashed(), *command],
                stdin=stdin,
                stdout=output,
                stderr=problems,
                env=self._environment,
                start_new_session=True,
            )
        job = Job(name=name, process=process, out=out, log=log)
        self._jobs.append(job)
        return job

    def open_shells(self) -> None:
        """Start all shells, so that they load side by side."""
        for program in MODULES:
            self._shell(program)

    def _shell(self, program: str) -> Job:
        if program not in self._shells:
            shell = [sys.executable, "-m", "eigenveil_client.demo.shell", MODULES[program], LOADED[program]]
            command = [*shell, str(self._logs)]
            self._shells[program] = self._start(f"{program}-shell", command, subprocess.PIPE)
            self._asked[program] = 0
        return self._shells[program]

    def ask(self, name: str, program: str, *arguments: str | Path) -> Task:
        """Have a command run, after all that were asked of the same program before it."""
        job = self._shell(program)
        number = self._asked[program]
        out, log = self._logs / f"{name}.out", self._logs / f"{name}.log"
        for path in (out, log):
            path.touch()  # for whoever asks why a command never had its turn
        line = json.dumps([name, [program, *map(str, arguments)]])
        assert job.process.stdin is not None
        with suppress(BrokenPipeError):  # `finish` says why it ended
            job.process.stdin.write(f"{line}\n".encode())
            job.process.stdin.flush()
        self._asked[program] += 1
        return Task(name=name, shell=job, number=number, out=out, log=log)

    def finish(self, tasks: Sequence[Task]) -> list[dict[str, Any]]:
        """Wait for commands to end well; the JSON object each printed last.

        Raises:
            EigenveilError: the command's own error, naming its log.
        """
        deadline = time.monotonic() + COMMAND_SECONDS
        for task in tasks:
            _until(_has_ended, task, "did not end", deadline)
            if code := _code(task):
                raise failure(task, code)
        return [_last_object(task) for task in tasks]

    def ready(self, jobs: Sequence[Job]) -> None:
        """Wait until each daemon has printed the line that says it serves.

        Raises:
            EigenveilError: a daemon ended, or took too long.
        """
        deadline = time.monotonic() + COMMAND_SECONDS
        for job in jobs:
            _until(_serves, job, "did not serve", deadline)

    def check(self, daemons: Sequence[Job]) -> None:
        """Raise the error of any of `daemons` that has ended."""
        for job in daemons:
            _check(job)

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
            if job.process.stdin is not None:
                with suppress(BrokenPipeError):  # of one that ended before it read all
                    job.process.stdin.close()
        deadline = time.monotonic() + STOP_SECONDS
        for job in reversed(self._jobs):
            try:
                job.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()
        self._jobs.clear()
        self._shells.clear()


def _until(done: Callable[[One], bool], one: One, problem: str, deadline: float) -> None:
    """Look until it is done.

    Raises:
        EigenveilError: the process that does it ended, or the deadline passed.
    """
    while not done(one):
        _check(one)
        if time.monotonic() > deadline:
            raise InternalError(
                Code.BUG, f"{one.name} {problem} within {COMMAND_SECONDS:.0f} s; see {one.log}"
            )
        time.sleep(GLANCE_SECONDS)


def _check(one: Job | Task) -> None:
    if one.process.poll() is not None:
        raise failure(one, one.process.returncode)


def _serves(daemon: Job) -> bool:
    return b"\n" in daemon.out.read_bytes()


def _has_ended(task: Task) -> bool:
    return _code(task) is not None


def _code(task: Task) -> int | None:
    """What a command ended with; None while it runs, or waits for its turn."""
    *codes, _ = task.shell.out.read_text().split("\n")
    return int(codes[task.number]) if task.number < len(codes) else None


def failure(ended: Job | Task, code: int) -> EigenveilError:
    """The error of a command that ended badly, with where to read more."""
    try:
        told = _last_object(ended)
        return error(Code(told["error"]), f"{ended.name}: {told['message']} (its log is {ended.log})")
    except (ValueError, KeyError):
        log, last = _last_words(ended)
        return InternalError(Code.BUG, f"{ended.name} ended with {code}: {last} (its log is {log})")


def _last_words(ended: Job | Task) -> tuple[Path, str]:
    """The log that says how it ended, and its last line. A command without its turn has its shell's."""
    lines = ended.log.read_text(errors="replace").strip().splitlines()
    if not lines and isinstance(ended, Task):
        return _last_words(ended.shell)
    return ended.log, lines[-1] if lines else "no message"


def _last_object(ended: Job | Task) -> dict[str, Any]:
    lines = ended.out.read_text().strip().splitlines()
    value = json.loads(lines[-1]) if lines else {}
    if not isinstance(value, dict):
        raise ValueError(f"{ended.name} printed no JSON object")
    return value
