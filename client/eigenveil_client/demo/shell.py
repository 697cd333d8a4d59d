"""Run as a program: commands of one of ours, in one process, one after another as standard input asks.

Starting Python and loading what a command needs takes many times longer than nearly any command does. A
command reads and writes the files, and says the words, that it would in a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module

from eigenveil.errors import EigenveilError
from eigenveil_common.command import failed, needing

EXTRAS = "analyst,coordinator,site"  # the demonstration is all roles at once


def main(module: str, loaded: str, logs: str) -> None:
    """A line of standard input is [name, words] and the answer an exit code; what the command says is in
    `logs`, as `name`.out and `name`.log."""
    command = _command(module, loaded)
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        for line in sys.stdin:
            name, sys.argv = json.loads(line)
            _turn(sys.stdout.fileno(), f"{logs}/{name}.out", os.O_TRUNC)
            _turn(sys.stderr.fileno(), f"{logs}/{name}.log", os.O_APPEND)
            code = command()
            sys.stdout.flush()
            sys.stderr.flush()
            print(code, file=answers, flush=True)


def _command(module: str, loaded: str) -> Callable[[], int]:
    """`main` of `module`, with `loaded` in memory; where a library is not there, what says so each time."""
    try:
        with needing(EXTRAS):
            main: Callable[[], int] = import_module(module).main
            import_module(loaded)
            return main
    except EigenveilError as problem:
        return partial(failed, problem)


def _turn(number: int, path: str, how: int) -> None:
    """From here on a file is what an open one's number means."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o644)
    os.dup2(file, number)
    os.close(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
