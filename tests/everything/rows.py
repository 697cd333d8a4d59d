"""The rows of `make everything`: each command of the Makefile that promises something, and what it needs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from tests.torture import preflight
from tests.torture.checks import CHECKS

MINUTES = 45  # a row that takes longer has failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A command, and `lacking`: why this machine cannot run it, or an empty string."""

    name: str
    command: tuple[str, ...]
    promise: str
    lacking: Callable[[], str] = lambda: ""


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


ROWS = (
    Row(name="demo", command=("make", "demo"), promise="the main job"),
    Row(name="gates", command=("make", "lint"), promise="format, types, layers, tests of the tree",
        lacking=_programs(openssl="openssl")),
    Row(name="tests", command=("make", "test-all"), promise="every test and the audit, hypothesis thorough",
        lacking=_programs(openssl="openssl")),
    Row(name="mutants", command=("make", "mutants"), promise="every planted fault is caught"),
    Row(name="torture", command=("make", "torture"), promise="what daemons must survive, at full scale",
        lacking=lambda: "; ".join(preflight.lacking(tuple(CHECKS)))),
    Row(name="browser", command=("make", "browser"), promise="every page in Chromium",
        lacking=_programs(chromium="chromium")),
    Row(name="docs-site", command=("make", "docs-site"), promise="every block of the guide runs, no warning"),
    Row(name="bench", command=("make", "bench"), promise="accuracy and speed: no miss that is not on record"),
    Row(name="fuzz", command=("make", "fuzz"), promise="ten minutes of mutated inputs, no surprise"),
    Row(name="image", command=("make", "image"), promise="the container images build", lacking=_engine),
)  # fmt: skip
