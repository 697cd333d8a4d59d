"""Operating-system processes of the demonstration: start, wait, stop; and a program that runs many commands.

`main` runs commands of one of our programs in one process, one after another, from standard input: starting
Python and loading modules takes longer than most commands. A command reads, writes and prints the same as in
a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from eigenveil.errors import Code, EigenveilError, InternalError, error
from eigenveil_client.demo import parent_guard
from eigenveil_common.command import report_error, require_extra

MODULES = {
    "eigenveil": "eigenveil_client.cli",
    "eigenveil-coordinator": "eigenveil_server.cli",
    "eigenveil-site": "eigenveil_client.site.commands.main",
}
COMMAND_SECONDS = 60.0
STOP_SECONDS = 5.0
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A running program, or the command number `number` of a `shell`. Its standard output and error are
    `name`.out and `name`.log in the logs."""

    name: str
    process: subprocess.Popen[bytes]
    out: Path
    log: Path
    shell: Job | None = None
    number: int = 0


def command_line(program: str) -> list[str]:
    """Return the command line of one of our programs: the script beside this Python, or its module."""
    script = Path(sys.executable).parent / program
    return [str(script)] if script.exists() else [sys.executable, "-m", MODULES[program]]


class Processes:
    """All processes of one demonstration. `stop` ends them. Each daemon has a process. Other commands of one
    program share a process, a shell. Use from the main thread only: a child ends with the thread that started
    it."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._jobs: list[Job] = []
        self._shells: dict[str, Job] = {}
        self._enqueued: dict[str, int] = {}
        # Several processes share few cores: more BLAS threads slow each other down.
        self._environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **os.environ}

    def start(self, name: str, program: str, *arguments: str | Path) -> Job:
        """Start a daemon."""
        return self._start(name, self.command(name, program, *arguments), subprocess.DEVNULL)

    def command(self, name: str, program: str, *arguments: str | Path) -> list[str]:
        """Return the command line of the daemon `name`."""
        return [*command_line(program), *map(str, arguments)]

    def _start(self, name: str, command: list[str], stdin: int) -> Job:
        """Start a process in its own session, so that Ctrl-C reaches the demonstration only."""
        out, log = self._logs / f"{name}.out", self._logs / f"{name}.log"
        # ends the command when the demonstration is killed
        guard = [sys.executable, "-I", "-S", parent_guard.__file__, str(os.getpid())]
        with out.open("wb") as output, log.open("ab") as problems:
            process = subprocess.Popen(
                [*guard, *command], stdin=stdin, stdout=output, stderr=problems,
                env=self._environment, start_new_session=True,
            )  # fmt: skip
        job = Job(name=name, process=process, out=out, log=log)
        self._jobs.append(job)
        return job

    def open_shells(self) -> None:
        """Start all shells, so that they load in parallel."""
        for program in MODULES:
            self._shell(program)

    def _shell(self, program: str) -> Job:
        if program not in self._shells:
            module = [sys.executable, "-m", "eigenveil_client.demo.processes"]
            command = [*module, MODULES[program], str(self._logs)]
            self._shells[program] = self._start(f"{program}-shell", command, subprocess.PIPE)
            self._enqueued[program] = 0
        return self._shells[program]

    def enqueue(self, name: str, program: str, *arguments: str | Path) -> Job:
        """Queue a command, after all earlier ones of the same program."""
        job = self._shell(program)
        number = self._enqueued[program]
        out, log = self._logs / f"{name}.out", self._logs / f"{name}.log"
        for path in (out, log):
            path.touch()  # exist also for a command that never ran
        line = json.dumps([name, [program, *map(str, arguments)]])
        assert job.process.stdin is not None
        with suppress(BrokenPipeError):  # `finish` reports why it ended
            job.process.stdin.write(f"{line}\n".encode())
            job.process.stdin.flush()
        self._enqueued[program] += 1
        return Job(name=name, process=job.process, out=out, log=log, shell=job, number=number)

    def finish(self, tasks: Sequence[Job]) -> list[dict[str, Any]]:
        """Wait until the commands succeed; return the JSON object that each printed last. Raises
        EigenveilError: the command's own error, with its log."""
        deadline = time.monotonic() + COMMAND_SECONDS
        for task in tasks:
            _wait_until(lambda one: _code(one) is not None, task, "did not end", deadline)
            if code := _code(task):
                raise failure(task, code)
        return [_last_object(task) for task in tasks]

    def ready(self, jobs: Sequence[Job]) -> None:
        """Wait until each daemon has printed that it serves."""
        deadline = time.monotonic() + COMMAND_SECONDS
        for job in jobs:
            _wait_until(lambda one: b"\n" in one.out.read_bytes(), job, "did not serve", deadline)

    def kill(self, job: Job) -> None:
        """Kill with SIGKILL, and wait for the end."""
        job.process.kill()
        job.process.wait()
        self._jobs.remove(job)

    def stop(self) -> None:
        """End all processes, the latest first: terminate, then kill."""
        for job in reversed(self._jobs):
            if job.process.poll() is None:
                job.process.terminate()
            if job.process.stdin is not None:
                with suppress(BrokenPipeError):  # it ended before it read all
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


def _wait_until(done: Callable[[Job], bool], waitable: Job, problem: str, deadline: float) -> None:
    """Poll until `done`, or raise an error: the process ended, or the deadline passed."""
    while not done(waitable):
        check(waitable)
        if time.monotonic() > deadline:
            late = f"{waitable.name} {problem} within {COMMAND_SECONDS:.0f} s; see {waitable.log}"
            raise InternalError(Code.BUG, late)
        time.sleep(POLL_SECONDS)


def check(waitable: Job) -> None:
    """Raise the error of a process that has ended."""
    if waitable.process.poll() is not None:
        raise failure(waitable, waitable.process.returncode)


def _code(task: Job) -> int | None:
    """Return the exit code of a command; None before its end."""
    assert task.shell is not None
    *codes, _ = task.shell.out.read_text().split("\n")
    return int(codes[task.number]) if task.number < len(codes) else None


def failure(finished: Job, code: int) -> EigenveilError:
    """Return the error of a command that failed, with its log."""
    try:
        printed = _last_object(finished)
        return error(Code(printed["error"]), f"{finished.name}: {printed['message']} (log: {finished.log})")
    except (ValueError, KeyError):
        log, last = _last_log_line(finished)
        return InternalError(Code.BUG, f"{finished.name} ended with exit code {code}: {last} (log: {log})")


def _last_log_line(finished: Job) -> tuple[Path, str]:
    """Return the log of an ended process and its last line; of a command that never ran, its shell's."""
    lines = finished.log.read_text(errors="replace").strip().splitlines()
    if not lines and finished.shell is not None:
        return _last_log_line(finished.shell)
    return finished.log, lines[-1] if lines else "no message"


def _last_object(finished: Job) -> dict[str, Any]:
    lines = finished.out.read_text().strip().splitlines()
    value = json.loads(lines[-1]) if lines else {}
    if not isinstance(value, dict):
        raise ValueError(f"{finished.name} printed no JSON object")
    return value


EXTRAS = "analyst,coordinator,site"  # the demonstration needs all roles


def main(module: str, logs: str) -> None:
    """Run the command of each line [name, arguments] of standard input, and answer with its exit code. The
    output of the command is in `logs`, as `name`.out and `name`.log."""
    command = _load_command(module)
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        for line in sys.stdin:
            name, sys.argv = json.loads(line)
            _redirect(sys.stdout.fileno(), f"{logs}/{name}.out", os.O_TRUNC)
            _redirect(sys.stderr.fileno(), f"{logs}/{name}.log", os.O_APPEND)
            code = command()
            sys.stdout.flush()
            sys.stderr.flush()
            print(code, file=answers, flush=True)


def _load_command(module: str) -> Callable[[], int]:
    """Return `main` of `module`; without a library, a command that says so."""
    try:
        with require_extra(EXTRAS):
            main: Callable[[], int] = import_module(module).main
            return main
    except EigenveilError as problem:
        return partial(report_error, problem)


def _redirect(number: int, path: str, flags: int) -> None:
    """Redirect the open file descriptor `number` to the file `path`."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    os.dup2(file, number)
    os.close(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
