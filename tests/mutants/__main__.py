"""`python -m tests.mutants`: plants every fault of the table, one at a time, in a copy of this tree, and runs
the test that must catch it.

A row whose text or test is not there is STALE: it is reported, and all others run. A test that fails without
any fault catches nothing, so first all of them run on the plain copy, and must pass. A fault counts as caught
only if its test ran and failed: not if it could not be collected, or hung. The exit code is 0 only if every
fault was caught and no row of the table is stale."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.mutant import Mutant
from tests.mutants.table import MUTANTS
from tests.mutants.trees import LINT, SECONDS, copied, digest, missing, run, with_fault

FAILED = 1  # what pytest and lint-imports return for "it ran, and not all is well"


def stale(mutant: Mutant, plain: Path, gone: set[str]) -> str:
    """Misfit of a row to the tree; empty if it fits."""
    file = plain / mutant.file
    times = file.read_text().count(mutant.old) if file.is_file() else 0
    if times != 1:
        return f"STALE: its text occurs {times} times"
    return f"STALE: no test is called {mutant.test}" if mutant.test in gone else ""


def planted(mutant: Mutant, plain: Path, tree: Path) -> str:
    """Outcome of one fault: "caught", or why not."""
    with_fault(mutant, plain, tree)
    try:
        code, output = run(tree, [mutant.test])
    finally:
        shutil.rmtree(tree)
    if code == FAILED:
        return "caught"
    return "NOT CAUGHT" if code == 0 else f"BROKEN ({code}): {output[-800:]}"


def batches(tests: set[str], jobs: int) -> list[list[str]]:
    """The tests in about `jobs` parts, those of one file together; the linter is a part of its own."""
    files = sorted({test.partition("::")[0] for test in tests - {LINT}})
    parts = [
        [test for test in sorted(tests) if test.partition("::")[0] in files[i::jobs]] for i in range(jobs)
    ]
    return [part for part in (*parts, sorted(tests & {LINT})) if part]


def sound(plain: Path, tests: set[str], threads: ThreadPoolExecutor, jobs: int) -> bool:
    """True if all these tests pass with nothing planted; failures are printed."""
    print(f"{len(tests)} tests must pass where nothing is planted", flush=True)
    fine = True
    for code, output in threads.map(lambda part: run(plain, part, 5 * SECONDS), batches(tests, jobs)):
        fine = fine and code == 0
        print(output[-3000:] if code else "", end="")
    return fine


def thirds(mutants: tuple[Mutant, ...], tree: str) -> list[tuple[Mutant, ...]]:
    """The rows in three parts of nearly equal size, other ones for each digest of a tree."""
    ordered = sorted(mutants, key=lambda one: hashlib.sha256(f"{tree} {one}".encode()).digest())
    chosen = [set(ordered[i::3]) for i in range(3)]
    return [tuple(one for one in mutants if one in part) for part in chosen]


def report(mutants: tuple[Mutant, ...], jobs: int, *, third: bool = False) -> bool:
    """Plant them all, or a third of them, a line each; whether all were caught."""
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="eigenveil-mutants-") as name,
        ThreadPoolExecutor(jobs) as threads,
    ):
        plain = copied(Path(name))
        tree = digest(plain)
        if third:
            of_all, mutants = len(mutants), thirds(mutants, tree)[0]
            print(f"{len(mutants)} of {of_all} rows: the third that this tree's digest {tree[:12]} chooses")
        gone = missing(plain, (mutant.test for mutant in mutants))
        troubles = {mutant: stale(mutant, plain, gone) for mutant in mutants}
        fit = [mutant for mutant in mutants if not troubles[mutant]]
        if not sound(plain, {mutant.test for mutant in fit}, threads, jobs):
            print("tests fail although nothing is planted; nothing was counted")
            return False
        slots = [Path(name) / str(i) for i in range(len(fit))]
        found = threads.map(lambda one: planted(one[0], plain, one[1]), zip(fit, slots, strict=True))
        caught = 0
        for mutant in mutants:
            outcome = troubles[mutant] or next(found)
            caught += outcome == "caught"
            line = " ".join(mutant.new.split())[:60]
            print(f"{mutant.claim:4} {mutant.file:44} {line:60} {outcome}", flush=True)
        unchanged = digest(plain) == tree
    print("" if unchanged else "a test wrote into a file of its tree, which all copies share\n", end="")
    print(f"{caught} of {len(mutants)} caught  [{time.monotonic() - began:.0f} s]")
    return unchanged and caught == len(mutants)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="CLAIM", help="such as P13, R19 or TM9")
    parser.add_argument("--third", action="store_true", help="a third of the rows, by the digest of the tree")
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    mutants = tuple(m for m in MUTANTS if not chosen.only or m.claim in chosen.only)
    if not mutants:
        parser.error(f"no claim is called {' or '.join(chosen.only)}: say P1, for example")
    return 0 if report(mutants, chosen.jobs, third=chosen.third) else 1


if __name__ == "__main__":
    sys.exit(main())
