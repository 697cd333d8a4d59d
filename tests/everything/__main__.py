"""`python -m tests.everything`: run all that is promised, row by row, and write docs/CHECKED.md.

A run that was stopped goes on at its first unfinished or failed row; a row is run again when a file changed
that it depends on. The exit code is 0 if no row failed; a row that this machine cannot run says so and is
never green."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.everything.results import (
    FAILED,
    GREEN,
    NOT_RUN,
    Result,
    Results,
    load,
    machine,
    page,
    store,
    summary,
)
from tests.everything.rows import MINUTES, ROWS, Row
from tests.everything.tree import ROOT, TABLE, commit, digest

BUILD = ROOT / "build" / "everything"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
MAKES_OWN = re.compile(r"make(\[\d+\])?: ")  # what make says of itself
# An outer make hands its variables and its level on: ARGS is for this command, and not for the rows.
OUTER_MAKE = ("ARGS", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "GNUMAKEFLAGS")
CHANGED = "the tree changed while it ran: nothing was recorded"


def last_line(log: Path) -> str:
    """Return the last line of a log that holds a letter, without colours, 120 characters at most."""
    lines = (COLOURS.sub("", line).strip(" =\t") for line in log.read_text(errors="replace").splitlines())
    response = [
        " ".join(line.split()) for line in lines if re.search("[a-z]", line) and not MAKES_OWN.match(line)
    ]
    return response[-1][:120] if response else "no output"


def execute(command: tuple[str, ...], log: Path, seconds: float = 60 * MINUTES) -> int | None:
    """Run a command into a log file and return its exit code; None if it took too long and was ended."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        # A group of its own: ending the row must end everything that it started.
        child = subprocess.Popen(
            command, cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name not in OUTER_MAKE},
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
        try:
            return child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if child.poll() is None:
                _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a command as Ctrl-C does, then whatever of its group is left."""
    os.killpg(child.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        child.wait(timeout=20)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def run(row: Row, build: Path) -> Result:
    record = partial(Result, commit=commit(), machine=machine(), inputs=digest(package=row.package))
    if reason := row.lacking():
        return record(outcome=NOT_RUN, detail=reason, seconds=0.0)
    log, began = build / f"{row.name}.log", time.monotonic()
    code = execute(row.command, log)
    seconds = time.monotonic() - began
    detail = last_line(log) if code is not None else f"took longer than {MINUTES} minutes"
    return record(outcome=GREEN if code == 0 else FAILED, detail=detail, seconds=seconds)


def everything(
    rows: tuple[Row, ...],
    *,
    again: bool = False,
    every: tuple[Row, ...] = ROWS,
    build: Path = BUILD,
    table: Path = ROOT / TABLE,
    written: Callable[[str, Results, tuple[Row, ...]], str] = page,
) -> bool:
    """Run those of `rows` that are not green yet, a line each, and write the table of `every` row after each.

    Returns:
        Whether none of them failed and the tree stayed the same."""
    tree, state = digest(), build / "results.json"
    results = {name: result for name, result in load(state, every).items() if result.outcome == GREEN}
    for row in rows if again else ():
        results.pop(row.name, None)
    print(f"tree {tree}, commit {commit()}, {machine()}; logs in {build}", flush=True)
    for row in rows:
        if row.name not in results:
            print(f"{row.name:16} {shlex.join(row.command)} ...", flush=True)
            result = run(row, build)
            if digest() != tree:
                print(f"{row.name:16} {CHANGED}", flush=True)
                return False
            results[row.name] = result
            store(state, results)
            table.write_text(written(tree, results, every))
        result = results[row.name]
        print(f"{row.name:16} {result.outcome}: {result.detail}  [{result.seconds:.0f} s]", flush=True)
        if result.outcome == FAILED:
            print(f"{'':16} see {build / row.name}.log", flush=True)
    print(f"{summary(results, every)}  [{sum(r.seconds for r in results.values()) / 60:.0f} minutes]")
    return all(result.outcome != FAILED for result in results.values())


def status() -> str:
    text = (ROOT / TABLE).read_text() if (ROOT / TABLE).exists() else ""
    found = re.search(r"^Tree `(\w+)`: \*\*(.*)\*\*", text, re.MULTILINE)
    if found is None:
        return f"{TABLE} does not exist yet: run `make everything`"
    mine = "this tree" if found[1] == digest() else f"another tree (this one is {digest()})"
    return f"{TABLE} is about {found[1]}, {mine}: {found[2]}"


def heed_signals() -> None:
    """End as Ctrl-C does: also in the background, where a shell has SIGINT ignored."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)


def main() -> int:
    names = tuple(row.name for row in ROWS)
    parser = argparse.ArgumentParser(prog="python -m tests.everything", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="ROW")
    parser.add_argument("--again", action="store_true", help="run rows anew that are green already")
    parser.add_argument("--status", action="store_true", help="only say which tree the table is about")
    chosen = parser.parse_args()
    heed_signals()
    if chosen.status:
        print(status())
        return 0
    rows = tuple(row for row in ROWS if row.name in chosen.only)
    try:
        return 0 if everything(rows, again=chosen.again) else 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on here", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
