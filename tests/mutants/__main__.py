"""`python -m tests.mutants`: plants every fault of the table, one at a time, in a copy of this tree, and runs
the test that must catch it.

A test that fails without any fault catches nothing, so first all of them run on the plain copy, and must
pass. A fault counts as caught only if its test ran and failed: not if it could not be collected, or hung.
The exit code is 0 only if every fault was caught and no line of the table is stale.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.mutant import Mutant
from tests.mutants.table import MUTANTS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "common", "server", "client", "proto")
NEEDED = (*PACKAGES, "tests", "pyproject.toml")
LINT = "lint-imports"
FAILED = 1  # what pytest and lint-imports return for "it ran, and not all is well"
SECONDS = 240  # that one test may take; all of them together five times that


def run(tree: Path, tests: Iterable[str], seconds: float = SECONDS) -> tuple[int | None, str]:
    """Exit code (None: it hung) and output of tests on a tree."""
    named, folder = list(tests), Path(sys.executable).parent
    check = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        *named,
    ]
    command = [str(folder / LINT), "--no-logo", "--no-cache"] if named == [LINT] else check
    places = os.pathsep.join(str(tree / package) for package in PACKAGES)
    environment = {**os.environ, "PYTHONPATH": places, "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"it took longer than {seconds} s"
    return done.returncode, done.stdout + done.stderr


def planted(mutant: Mutant, plain: Path, tree: Path) -> str:
    """What became of one fault: "caught", or why not."""
    shutil.copytree(plain, tree)
    file = tree / mutant.file
    text = file.read_text()
    if text.count(mutant.old) != 1:
        return f"STALE: its text occurs {text.count(mutant.old)} times"
    file.write_text(text.replace(mutant.old, mutant.new))
    try:
        code, output = run(tree, [mutant.test])
    finally:
        shutil.rmtree(tree)
    if code == FAILED:
        return "caught"
    return "NOT CAUGHT" if code == 0 else f"BROKEN ({code}): {output[-800:]}"


def copied(folder: Path) -> Path:
    """A copy of what the tests need of this tree, whatever is not tracked left behind."""
    plain = folder / "plain"
    plain.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.db", ".hypothesis", "*.so")
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, plain / name, ignore=ignore)
        else:
            shutil.copy2(ROOT / name, plain / name)
    return plain


def sound(plain: Path, mutants: tuple[Mutant, ...]) -> bool:
    """Whether all tests of the table pass where nothing is planted; says so if not."""
    tests = {mutant.test for mutant in mutants}
    fine = True
    print(f"{len(tests)} tests must pass where nothing is planted", flush=True)
    for batch in ([*sorted(tests - {LINT})], [*(tests & {LINT})]):
        code, output = run(plain, batch, 5 * SECONDS) if batch else (0, "")
        fine = fine and code == 0
        print(output[-3000:] if code else "", end="")
    return fine


def report(mutants: tuple[Mutant, ...], jobs: int) -> bool:
    """Plant them all, a line each; whether all were caught."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="eigenveil-mutants-") as name:
        plain = copied(Path(name))
        if not sound(plain, mutants):
            print("tests fail although nothing is planted; nothing was counted")
            return False
        with ThreadPoolExecutor(jobs) as threads:
            trees = [Path(name) / str(i) for i in range(len(mutants))]
            found = threads.map(lambda one: planted(one[0], plain, one[1]), zip(mutants, trees, strict=True))
            caught = 0
            for mutant, outcome in zip(mutants, found, strict=True):
                caught += outcome == "caught"
                line = " ".join(mutant.new.split())[:60]
                print(f"{mutant.claim:4} {mutant.file:44} {line:60} {outcome}", flush=True)
    print(f"{caught} of {len(mutants)} caught  [{time.monotonic() - began:.0f} s]")
    return caught == len(mutants)


def main() -> int:
    """All faults, or those of the claims named by --only."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="CLAIM", help="such as P13")
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    mutants = tuple(m for m in MUTANTS if not chosen.only or m.claim in chosen.only)
    if not mutants:
        parser.error(f"no claim is called {' or '.join(chosen.only)}: say P1, for example")
    return 0 if report(mutants, chosen.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
