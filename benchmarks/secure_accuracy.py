"""Cost of secure aggregation in accuracy: the sine under it over the sine with a central coordinator.

Real tables, split evenly over five sites, one of which may collude: the noise of all shares is sqrt(5 / 4) =
1.118 times what the price asks for. A ratio of means, with its standard error; no more than 1.15 is allowed.
The two draw different noise, so a ratio is as good as its runs are many."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import a_study, exact
from benchmarks.families import Family, bundled, present
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import sin_angle
from eigenveil.simulation import simulate, split_rows
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Federation, Study, Trust

ALGORITHMS = (Algorithm.GAUSS_COV, Algorithm.REFINED_COV, Algorithm.REFINED_PCA, Algorithm.DP_PCA)
SITES = tuple(f"site-{i + 1}" for i in range(5))
MOST = 1.15
LINE = "{table:14} {algorithm:12} central {central:<8} secure {secure:<8} ratio {ratio} +- {error}"


def sine(study: Study, parts: Mapping[str, FloatArray], truth: FloatArray, seed: int) -> float:
    """Of one run."""
    return sin_angle(simulate(study, parts, seed=seed).estimate.components, truth)


def compared(family: Family, algorithm: Algorithm, k: int, runs: int, workers: int) -> dict[str, Any]:
    """One row: the mean sines and their ratio."""
    records, _ = family.draw(np.random.default_rng(0))
    study = a_study(
        family,
        algorithm=algorithm,
        components=k,
        expected_records=len(records),
        federation=Federation(sites=SITES),
    )
    parts, truth = split_rows(records, dict.fromkeys(SITES, 1.0)), exact(records, study)
    found: dict[Trust, FloatArray] = {}
    with ProcessPoolExecutor(workers) as pool:
        for trust in Trust:
            run = partial(sine, replace(study, trust=trust), parts, truth)
            found[trust] = np.array(list(pool.map(run, range(runs), chunksize=max(1, runs // 20))))
    central, secure = found[Trust.CENTRAL], found[Trust.SECURE_AGGREGATION]
    ratio = float(secure.mean() / central.mean())
    spread = np.hypot(central.std() / central.mean(), secure.std() / secure.mean()) / np.sqrt(runs)
    return {
        "table": family.name,
        "components": k,
        "algorithm": algorithm.value,
        "central": round(float(central.mean()), 6),
        "secure": round(float(secure.mean()), 6),
        "ratio": round(ratio, 3),
        "error": round(float(ratio * spread), 3),
    }


def main() -> int:
    """Print the table, or write it; exit 1 if a ratio is above what is allowed by more than its error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="", help="tables whose name contains this")
    parser.add_argument("--components", type=int, default=1)
    parser.add_argument("--out", type=Path, help="also write the rows as JSON")
    given = parser.parse_args()
    real = [*present(), *(family for family in bundled() if family.name in ("breast cancer", "digits"))]
    rows = []
    for family in (family for family in real if given.only in family.name):
        for algorithm in ALGORITHMS:
            rows.append(compared(family, algorithm, given.components, given.runs, given.workers))
            print(LINE.format(**rows[-1]), flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps({"runs": given.runs, "rows": rows}, indent=1) + "\n")
    return int(any(row["ratio"] - row["error"] > MOST for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
