"""Results of rows: stored while a run lasts, and written as the page docs/CHECKED.md."""

from __future__ import annotations

import json
import os
import platform
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.everything.rows import ROWS, Row
from tests.everything.tree import digest

GREEN, FAILED, NOT_RUN = "green", "FAILED", "not run"
HEAD = """# Checked as a whole

`make everything` writes this page. It is about one tree, named by a digest over all other files:
`.venv/bin/python -m tests.everything --status` compares it with the files here. *Not run* is never
green: the reason stands beside it. A row was run at the commit that it names, on files that are the same
in this tree; `torture` and `fuzz` read neither the pages nor the tests and benchmarks that they do not
import, so a change of those leaves them as they are.

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One row's outcome: green, FAILED or not run; its last line or the reason; seconds of wall time.

    `inputs` is the digest of the files that the row depends on."""

    outcome: str
    detail: str
    seconds: float
    commit: str
    machine: str
    inputs: str


Results = Mapping[str, Result]


def machine() -> str:
    """Return cores, memory, processor architecture and Python of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {memory:.0f} GiB, {platform.machine()}, Python {platform.python_version()}"


def load(path: Path, rows: tuple[Row, ...]) -> dict[str, Result]:
    """Return the stored results of those rows for which no file changed that they depend on."""
    if not path.exists():
        return {}
    stored = {name: Result(**fields) for name, fields in json.loads(path.read_text()).items()}
    inputs = {package: digest(package=package) for package in {row.package for row in rows}}
    remaining = [
        row.name for row in rows if row.name in stored and stored[row.name].inputs == inputs[row.package]
    ]
    return {name: stored[name] for name in remaining}


def store(path: Path, results: Results) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {name: asdict(result) for name, result in results.items()}
    path.with_suffix(".new").write_text(json.dumps(rows, indent=1))
    path.with_suffix(".new").replace(path)


def page(tree: str, results: Results, rows: tuple[Row, ...] = ROWS) -> str:
    """Return docs/CHECKED.md: a line for each row, also for those that have not run yet.

    A machine stands above the table if it ran all rows, otherwise beside each commit."""
    seconds = sum(result.seconds for result in results.values())
    machines = {result.machine for result in results.values()}
    where = f" on one machine ({machines.pop()})" if len(machines) == 1 else ""
    lines = [
        f"Tree `{tree}`: **{summary(results, rows)}**, {seconds / 60:.0f} minutes{where}.\n",
        "| command | promise | result | seconds | commit |",
        "|---|---|---|---|---|",
        *(_line(row, results.get(row.name), one_machine=bool(where)) for row in rows),
    ]
    return HEAD + "\n".join(lines) + "\n"


def _line(row: Row, result: Result | None, *, one_machine: bool) -> str:
    command = f"`{shlex.join(row.command)}`"
    if result is None:
        return f"| {command} | {row.promise} | not run yet | | |"
    message = f"{result.outcome}: {result.detail}".replace("|", "/").removesuffix(": ")
    at = result.commit if one_machine else f"{result.commit}, {result.machine}"
    cells = (command, row.promise, message, f"{result.seconds:.0f}", at)
    return f"| {' | '.join(cells)} |"


def summary(results: Results, rows: tuple[Row, ...] = ROWS) -> str:
    """Return `green`, or which rows failed, are still to run or cannot be run here."""
    by_outcome = {
        outcome: [row.name for row in rows if row.name in results and results[row.name].outcome == outcome]
        for outcome in (FAILED, NOT_RUN)
    }
    waiting = [row.name for row in rows if row.name not in results]
    parts = ((FAILED, by_outcome[FAILED]), ("still to run", waiting), (NOT_RUN, by_outcome[NOT_RUN]))
    not_green = [f"{word}: {', '.join(names)}" for word, names in parts if names]
    return "; ".join(not_green) or "green"
