"""Copies of this tree, cheap ones with one fault each, and the tests that they are given to.

A copy for a fault is made of hard links, compiled files included, so it costs no bytes; only the file with
the fault is written, as a new one, and what was compiled from it is removed. Python and pytest replace
compiled files and never write into them. A test that did write into a file of its tree would change all
copies: `digest` before and after shows it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.mutants.mutant import Mutant

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "common", "server", "client", "proto")
NEEDED = (*PACKAGES, "tests", "docs/commands.schema.json", "pyproject.toml")
LINT = "lint-imports"
SECONDS = 240  # that one test may take; all of them together five times that
# pytest loads what the tests need, and no other plugin that is installed.
PLUGINS = (
    "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin", "-p", "pytest_timeout", "-p",
    "anyio.pytest_plugin",
)  # fmt: skip
PYTEST = (sys.executable, "-m", "pytest", "-q", *PLUGINS)


def run(tree: Path, tests: Iterable[str], seconds: float = SECONDS) -> tuple[int | None, str]:
    """Exit code (None: it hung) and output of tests on a tree."""
    named, folder = list(tests), Path(sys.executable).parent
    check = [*PYTEST, "-x", *named]
    return _called(
        [str(folder / LINT), "--no-logo", "--no-cache"] if named == [LINT] else check, tree, seconds
    )


def missing(tree: Path, tests: Iterable[str]) -> set[str]:
    """Those of the named tests that pytest does not collect.

    All of their files are collected at once: given one name that it does not find, pytest collects none.

    Raises:
        RuntimeError: a file cannot be imported."""
    named = set(tests) - {LINT}
    files = sorted({name.partition("::")[0] for name in named})
    here = [file for file in files if (tree / file).is_file()]
    code, output = _called([*PYTEST, "--collect-only", *here], tree, SECONDS)
    if code != 0:
        raise RuntimeError(f"pytest cannot collect the tests of the table:\n{output[-3000:]}")
    found = set(output.splitlines())
    known = found | {name.partition("[")[0] for name in found} | {name.partition("::")[0] for name in found}
    return named - known


def _called(command: list[str], tree: Path, seconds: float) -> tuple[int | None, str]:
    slots = os.pathsep.join(str(tree / package) for package in PACKAGES)
    environment = {
        **os.environ, "PYTHONPATH": slots, "OPENBLAS_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # fmt: skip
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is compiled once is linked into every copy
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"it took longer than {seconds} s"
    return done.returncode, done.stdout + done.stderr


def copied(folder: Path) -> Path:
    """A copy of what the tests need of this tree, whatever is not tracked left behind."""
    plain = folder / "plain"
    plain.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.db", ".hypothesis", "*.so")
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, plain / name, ignore=ignore)
        else:
            (plain / name).parent.mkdir(exist_ok=True)
            shutil.copy2(ROOT / name, plain / name)
    return plain


def digest(plain: Path) -> str:
    """SHA-256 of the paths and bytes of a copy, without what was compiled or cached in it."""
    found = hashlib.sha256()
    for file in sorted(file for name in NEEDED for file in [plain / name, *(plain / name).rglob("*")]):
        if file.is_file() and not {"__pycache__", ".hypothesis"} & set(file.parts):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            found.update(f"{content} {file.relative_to(plain)}\n".encode())
    return found.hexdigest()


def with_fault(mutant: Mutant, plain: Path, tree: Path) -> None:
    """Make `tree` a copy with one fault, of which nothing that was compiled without it remains."""
    shutil.copytree(plain, tree, copy_function=os.link)
    file = tree / mutant.file
    text = file.read_text()
    file.unlink()
    file.write_text(text.replace(mutant.old, mutant.new))
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        compiled.unlink()
