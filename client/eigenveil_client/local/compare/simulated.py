"""A comparison by simulation, on records that one may look at: every algorithm, and the exact answer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from eigenveil.algorithms.gradient import oja
from eigenveil.errors import RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import sin_angle
from eigenveil.simulation import Simulation, simulate
from eigenveil.study.algorithm import Algorithm, OwnAlgorithm
from eigenveil.study.grid import GridRows
from eigenveil.study.study import Study
from eigenveil_client.local.compare.rows import Row
from eigenveil_client.local.compare.selection import Wanted
from eigenveil_client.local.exact_pca import analysed, exact
from eigenveil_common.threads import CORES


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bench:
    """What every algorithm is run on: records (grid and by site), the exact answer, repeats and seed.

    Shape: centred (n, d) in analysis units, truth (k, d), covariance (d, d).
    """

    study: Study
    parts: dict[str, FloatArray]
    centred: FloatArray
    truth: FloatArray
    covariance: FloatArray
    repeat: int
    seed: int | None


def bench(study: Study, rows: GridRows, parts: dict[str, FloatArray], repeat: int, seed: int | None) -> Bench:
    """The exact answer of the records, computed once. Shape: rows (n, d)."""
    centred = analysed(rows, study)
    return Bench(
        study=study,
        parts=parts,
        centred=centred,
        truth=exact(rows, study),
        covariance=centred.T @ centred / max(1, len(centred)),
        repeat=repeat,
        seed=seed,
    )


def steps(one: Bench, chosen: Wanted) -> list[tuple[str, Callable[[], Row]]]:
    """What is to be run, in order: a name and a run each."""
    out: list[tuple[str, Callable[[], Row]]] = [
        (each.algorithm.value, partial(measured, one, each.algorithm)) for each in chosen.able
    ]
    if chosen.own is not None:
        out.append((f"{chosen.own.name} (your own)", partial(measured, one, chosen.own)))
    if chosen.oja:
        out.append((Algorithm.OJA.value, partial(without_privacy, one)))
    return out


def refusals(chosen: Wanted) -> list[Row]:
    """A row for each algorithm that does not apply."""
    return [
        Row(algorithm=each.algorithm.value, trusted=each.trusted, outcome=each.refused or "")
        for each in chosen.refused
    ]


def measured(one: Bench, algorithm: Algorithm | OwnAlgorithm) -> Row:
    """Run one algorithm `repeat` times, with seeds seed, seed + 1, ... if there is one."""
    trusted, masked = algorithm.properties.trusted, one.study.masked
    runs, times = [], []
    if isinstance(algorithm, OwnAlgorithm):
        study, own = one.study, algorithm
        blank = Row(algorithm=algorithm.name, own=True, trusted=trusted, masked=masked)
    else:
        study, own = one.study.running(algorithm), None
        blank = Row(algorithm=algorithm.value, trusted=trusted, masked=masked)
    try:
        with ThreadPoolExecutor(CORES) as threads:
            for i in range(one.repeat):
                begin, seed = time.perf_counter(), None if one.seed is None else one.seed + i
                runs.append(simulate(study, one.parts, seed=seed, algorithm=own, apply=threads.map))
                times.append(time.perf_counter() - begin)
    except RequestError as problem:
        return replace(blank, outcome=str(problem))
    return _filled(one, blank, runs, times)


def _filled(one: Bench, blank: Row, runs: list[Simulation], times: list[float]) -> Row:
    spent = runs[-1].document["guarantee"]
    released = [run.estimate for run in runs if run.estimate.declined is None]
    sines = [sin_angle(one.truth, estimate.components) for estimate in released]
    matrices = [estimate.covariance for estimate in released if estimate.covariance is not None]
    size = float(np.linalg.norm(one.covariance))
    off = [float(np.linalg.norm(matrix - one.covariance)) / max(size, 1e-300) for matrix in matrices]
    stated = [estimate.sin_error for estimate in released if estimate.sin_error is not None]
    return replace(
        blank,
        repeats=len(runs),
        sin_angle=statistics.median(sines) if sines else None,
        sin_least=min(sines, default=None),
        sin_most=max(sines, default=None),
        frobenius=statistics.median(off) if off else None,
        predicted=statistics.median(stated) if stated else None,
        epsilon=spent.get("epsilon", one.study.epsilon),
        delta=spent.get("delta", one.study.delta),
        micro_rho=sum(release.micro_rho for release in runs[-1].releases),
        rounds=len(runs[-1].releases),
        bytes_per_site=runs[-1].bytes_per_site,
        seconds=statistics.median(times),
        outcome=_declined(runs, len(released)),
    )


def _declined(runs: list[Simulation], released: int) -> str:
    if released == len(runs):
        return ""
    why = next(run.estimate.declined for run in runs if run.estimate.declined is not None)
    often = "no release" if len(runs) == 1 else f"no release in {len(runs) - released} of {len(runs)} runs"
    return f"{often}: {why}"


def without_privacy(one: Bench) -> Row:
    """Oja's rule on the records themselves: what an algorithm of one pass loses without any noise."""
    begin = time.perf_counter()
    found = oja.oja(one.centred, one.study.components, rank=one.study.rank)
    return Row(
        algorithm=Algorithm.OJA.value,
        private=False,
        repeats=1,
        sin_angle=sin_angle(one.truth, found),
        seconds=time.perf_counter() - begin,
    )
