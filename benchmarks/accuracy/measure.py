"""Measures tables seed by seed, and stores as it goes, so that an interrupted measurement is continued.

The stored table of an earlier commit is made from its work tree, with this program and that tree's product:

    git worktree add ../earlier 7fca1e19
    (cd ../earlier && cc -O3 -ffp-contract=off -fwrapv -fno-math-errno -fPIC -shared \\
        -o core/eigenveil/site/kernels/kernels.so core/eigenveil/site/kernels/kernels.c -lm)
    PYTHONPATH=../earlier/core:../earlier/client:../earlier/common:../earlier/proto OPENBLAS_NUM_THREADS=1 \\
        python -m benchmarks.accuracy --store benchmarks/accuracy/7fca1e19.csv.gz
"""

from __future__ import annotations

import multiprocessing
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

import eigenveil
from benchmarks.accuracy.groups import TableRuns, table_runs
from benchmarks.accuracy.runs import AccuracyCell, a_study, exact, runs
from benchmarks.accuracy.stored import StoredRuns, read

IN_FLOATS = " in floats"  # after the name of an algorithm
Measured = list[tuple[AccuracyCell, tuple[float, float]]]


def one_seed(floats: bool, task: tuple[int, int]) -> Measured:
    """Return the runs of all cells of a table for one seed; for a process of its own."""
    number, seed = task
    chosen = table_runs()[number]
    found = list(runs(chosen.family, chosen.settings, chosen.algorithms, seed))
    if floats and chosen.floats:
        found += _in_floats(chosen, seed)
    return found


def _in_floats(chosen: TableRuns, seed: int) -> Iterator[tuple[AccuracyCell, tuple[float, float]]]:
    from benchmarks.accuracy.floats import run_in_floats  # needs today's product

    records, _ = chosen.family.draw(np.random.default_rng(seed))
    for k, epsilon in chosen.settings:
        study = a_study(chosen.family, components=k, epsilon=epsilon, expected_records=len(records))
        truth = exact(records, study)
        for algorithm in chosen.algorithms:
            name = algorithm.value + IN_FLOATS
            cell = AccuracyCell(table=chosen.family.name, components=k, epsilon=epsilon, algorithm=name)
            yield cell, run_in_floats(replace(study, algorithm=algorithm), records, truth, seed)


def measure(numbers: Sequence[int], *, seeds: int, floats: bool, jobs: int, path: Path | None) -> StoredRuns:
    """Return at most `seeds` runs of each cell of these tables, by their places in `table_runs`. With a path,
    runs that it holds are not repeated, and each seed is stored when it is done."""
    done = read(path) if path is not None and path.exists() else StoredRuns(header=[source()])
    tasks = [task for number in numbers for task in _left(done, number, seeds, floats)]
    work = partial(one_seed, floats)
    if jobs == 1:
        results: Iterator[Measured] = map(work, tasks)
        return _collected(done, tasks, results, path)
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        return _collected(done, tasks, pool.map(work, tasks), path)


def _left(done: StoredRuns, number: int, seeds: int, floats: bool) -> Iterator[tuple[int, int]]:
    """Yield the seeds of a table that some cell lacks."""
    chosen = table_runs()[number]
    names = [one.value for one in chosen.algorithms]
    names += [name + IN_FLOATS for name in names] if floats and chosen.floats else []
    cells = [
        AccuracyCell(table=chosen.family.name, components=k, epsilon=epsilon, algorithm=name)
        for k, epsilon in chosen.settings
        for name in names
    ]
    had = min(len(done.cells.get(cell, ())) for cell in cells)
    yield from ((number, seed) for seed in range(had, min(seeds, chosen.seeds)))


def _collected(
    done: StoredRuns, tasks: Sequence[tuple[int, int]], results: Iterator[Measured], path: Path | None
) -> StoredRuns:
    for (_, seed), found in zip(tasks, results, strict=True):
        for cell, pair in found:
            done.add(cell, seed, pair)
        if path is not None:
            done.write(path)
    return done


def source() -> str:
    """Return the commit whose product is measured, as the header of a stored table says it."""
    folder = Path(eigenveil.__file__).parent
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    commit = found.stdout.strip() or "unknown"
    return f"product of commit {commit}; python -m benchmarks.accuracy --store FILE (measure.py)"
