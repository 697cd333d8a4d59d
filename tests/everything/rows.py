"""The rows of `make everything`: each command of the Makefile that promises something, and what it needs."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from tests.everything.tree import commit
from tests.torture.checks import CHECKS, lacking

MINUTES = 60  # a row that takes longer has failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A command, and `lacking`: why this machine cannot run it, or an empty string.

    A row with a `package` of tests depends on no other tests: it stays green when one of those changes."""

    name: str
    command: tuple[str, ...]
    promise: str
    lacking: Callable[[], str] = lambda: ""
    package: str = ""


def _programs(**packages: str) -> Callable[[], str]:
    """Return a function that names the programs that are not here, with their Debian packages."""

    def lacking() -> str:
        absent = [name for name in packages if shutil.which(name) is None]
        return "; ".join(f"needs the program {name} (package {packages[name]})" for name in absent)

    return lacking


def _engine() -> str:
    """Return why no container can be built: no engine is installed, or none answers."""
    for engine in ("podman", "docker"):
        if shutil.which(engine) and subprocess.run([engine, "info"], capture_output=True).returncode == 0:
            return ""
    return "needs a container engine that answers (package podman)"


def uncommitted() -> str:
    return "needs a tree whose changes are committed" if commit().endswith("+") else ""


def _torture() -> Iterator[Row]:
    """Return a row for each folder of checks, so that a stopped run goes on after the last whole one."""
    folders = Counter(check.folder for check in CHECKS.values())
    rows: dict[str, list[str]] = {folder: [] for folder, count in folders.items() if count > 1}
    for name, check in CHECKS.items():
        rows.setdefault(check.folder if check.folder in rows else "others", []).append(name)
    for folder, names in rows.items():
        yield Row(
            name=f"torture-{folder}", command=("make", "torture", f"ARGS=--only {' '.join(names)}"),
            promise="what daemons must survive, at full scale",
            lacking=partial(_lacking, names), package="tests.torture",
        )  # fmt: skip


def _lacking(checks: list[str]) -> str:
    return "; ".join(lacking(checks))


ROWS = (
    Row(name="demo", command=("make", "demo"), promise="the main job"),
    Row(name="gates", command=("make", "lint"), promise="format, types, layers, tests of the tree",
        lacking=_programs(openssl="openssl")),
    Row(name="tests", command=("make", "test-all"), promise="every test and the audit, hypothesis thorough",
        lacking=_programs(openssl="openssl")),
    Row(name="mutants", command=("make", "mutants"), promise="every planted fault is caught"),
    *_torture(),
    Row(name="browser", command=("make", "browser"), promise="every page in Chromium",
        lacking=_programs(chromium="chromium")),
    Row(name="docs-site", command=("make", "docs-site"), promise="every block of the guide runs, no warning"),
    Row(name="bench", command=("make", "bench"), promise="accuracy and speed: no miss that is not on record"),
    Row(name="papers", command=("make", "papers"), promise="every scheme of the papers runs to a result"),
    Row(name="fuzz", command=("make", "fuzz"), promise="ten minutes of mutated inputs, no surprise",
        package="tests.fuzz"),
    Row(name="release", command=("make", "release", "ARGS=--check --committed"),
        promise="two builds of a release are the same bytes", lacking=uncommitted),
    Row(name="image", command=("make", "image"), promise="the container images build", lacking=_engine),
)  # fmt: skip
