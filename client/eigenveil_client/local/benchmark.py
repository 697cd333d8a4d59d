"""Exact PCA for simulations and demonstrations, on records that the user may see. Not private. Comparison by
simulation, on records that the user may see, with the exact answer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from eigenveil.algorithms.papers import oja
from eigenveil.errors import RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, sin_angle
from eigenveil.simulation import Simulation, simulate
from eigenveil.study.algorithm import Algorithm, CustomAlgorithm
from eigenveil.study.grid import GridRows
from eigenveil.study.study import Scaling, Study
from eigenveil_client.local.algorithm_selection import AlgorithmSelection
from eigenveil_client.local.tables import ComparisonRow
from eigenveil_common.concurrency import CORES


def analysis_rows(rows: GridRows, study: Study) -> FloatArray:
    """Return the records as the study analyses them. Centred if it centres, and divided by each column's
    standard deviation if it standardises. Shape: (n, d) -> (n, d)."""
    x: FloatArray = rows / study.grid_steps
    if study.centring and len(x):
        x = x - x.mean(axis=0)
    if study.scaling is Scaling.STANDARD:
        spread = np.sqrt((x**2).mean(axis=0)) if len(x) else np.ones(rows.shape[1])
        x = x / np.where(spread > 0, spread, 1.0)
    return x


def exact_components(rows: GridRows, study: Study) -> FloatArray:
    """Return the components on the study's grid without noise and without clipping.

    Shape: rows (n, d) -> (k, d)."""
    x = analysis_rows(rows, study)
    _, vectors = eigenpairs(np.asarray(x.T @ x / max(1, len(x))))
    return vectors[:, : study.components].T


Step = tuple[str, Callable[[], ComparisonRow]]  # a name, and the run of an algorithm


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Benchmark:
    """Input of every run: records (analysed and by site), the exact answer, repeats and seed.

    Shape: centred (n, d) in analysis units, truth (k, d), covariance (d, d)."""

    study: Study
    parts: dict[str, FloatArray]
    centred: FloatArray
    truth: FloatArray
    covariance: FloatArray
    repeat: int
    seed: int | None


def make_benchmark(
    study: Study, rows: GridRows, parts: dict[str, FloatArray], repeat: int, seed: int | None
) -> Benchmark:
    """Return the input of all runs, with the exact answer. Shape: rows (n, d)."""
    centred = analysis_rows(rows, study)
    return Benchmark(
        study=study, parts=parts, centred=centred, truth=exact_components(rows, study),
        covariance=centred.T @ centred / max(1, len(centred)), repeat=repeat, seed=seed,
    )  # fmt: skip


def steps(benchmark: Benchmark, chosen: AlgorithmSelection) -> list[Step]:
    """Return the runs in order."""
    out: list[Step] = [
        (each.algorithm.value, partial(measure, benchmark, each.algorithm)) for each in chosen.runnable
    ]
    if chosen.own is not None:
        out.append((f"{chosen.own.name} (your own)", partial(measure, benchmark, chosen.own)))
    if chosen.oja:
        out.append((Algorithm.OJA.value, partial(run_oja, benchmark)))
    return out


def refusals(chosen: AlgorithmSelection) -> list[ComparisonRow]:
    """Return a row for each algorithm that does not apply."""
    return [
        ComparisonRow(algorithm=each.algorithm.value, trusted=each.trusted, outcome=each.refused or "")
        for each in chosen.refused
    ]


def measure(benchmark: Benchmark, algorithm: Algorithm | CustomAlgorithm) -> ComparisonRow:
    """Run one algorithm `repeat` times, with seeds seed, seed + 1, ... if there is one."""
    study, custom = benchmark.study, None
    if isinstance(algorithm, CustomAlgorithm):
        name, custom = algorithm.name, algorithm
    else:
        name, study = algorithm.value, study.with_algorithm(algorithm)
    trusted, own = algorithm.properties.trusted, custom is not None
    empty_row = ComparisonRow(algorithm=name, custom=own, trusted=trusted, masked=study.masked)
    runs, times = [], []
    try:
        with ThreadPoolExecutor(CORES) as threads:
            for i in range(benchmark.repeat):
                begin, seed = time.perf_counter(), None if benchmark.seed is None else benchmark.seed + i
                runs.append(simulate(study, benchmark.parts, seed=seed, algorithm=custom, apply=threads.map))
                times.append(time.perf_counter() - begin)
    except RequestError as problem:
        return replace(empty_row, outcome=str(problem))
    return _summarise(benchmark, empty_row, runs, times)


def _summarise(
    benchmark: Benchmark, empty_row: ComparisonRow, runs: list[Simulation], times: list[float]
) -> ComparisonRow:
    spent = runs[-1].document["guarantee"]
    released = [run.estimate for run in runs if run.estimate.declined is None]
    sines = [sin_angle(benchmark.truth, estimate.components) for estimate in released]
    matrices = [estimate.covariance for estimate in released if estimate.covariance is not None]
    size = max(float(np.linalg.norm(benchmark.covariance)), 1e-300)
    matrix_errors = [float(np.linalg.norm(matrix - benchmark.covariance)) / size for matrix in matrices]
    stated = [estimate.sin_error for estimate in released if estimate.sin_error is not None]
    return replace(
        empty_row,
        repeats=len(runs),
        sin_angle=statistics.median(sines) if sines else None,
        sin_least=min(sines, default=None),
        sin_most=max(sines, default=None),
        frobenius=statistics.median(matrix_errors) if matrix_errors else None,
        predicted=statistics.median(stated) if stated else None,
        epsilon=spent.get("epsilon", benchmark.study.epsilon),
        delta=spent.get("delta", benchmark.study.delta),
        micro_rho=sum(release.micro_rho for release in runs[-1].releases),
        rounds=len(runs[-1].releases),
        bytes_per_site=runs[-1].bytes_per_site,
        seconds=statistics.median(times),
        outcome=_declined(runs),
    )


def _declined(runs: list[Simulation]) -> str:
    reasons = [run.estimate.declined for run in runs if run.estimate.declined is not None]
    some = "" if len(runs) == 1 else f" in {len(reasons)} of {len(runs)} runs"
    return f"no release{some}: {reasons[0]}" if reasons else ""


def run_oja(benchmark: Benchmark) -> ComparisonRow:
    """Run Oja's rule on the records without noise: the error of a one-pass algorithm alone."""
    begin = time.perf_counter()
    found = oja.oja(benchmark.centred, benchmark.study.components, rank=benchmark.study.rank)
    return ComparisonRow(
        algorithm=Algorithm.OJA.value,
        private=False,
        repeats=1,
        sin_angle=sin_angle(benchmark.truth, found),
        seconds=time.perf_counter() - begin,
    )
