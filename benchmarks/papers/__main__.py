"""`make papers`: run every scheme of the papers in its own regime."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.federation import federated
from benchmarks.papers.schemes import DELTA, SCHEMES, SITES, Regime, Scheme
from benchmarks.process import kept_if_failed
from eigenveil.algorithms.papers.oja import oja
from eigenveil.errors import RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import sin_angle
from eigenveil.planning.choose import make_plan
from eigenveil.simulation import simulate, split_rows
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Federation, Study

PAGE = Path(__file__).resolve().parents[2] / "docs" / "papers.md"
SMALL = ("subspace-exact", "smooth-gaussian", "subspace-reference")  # of each way to run, in a minute
SEED = 7
SITE_LIMIT = 100_000  # the least max_records that a new site allows
HEAD = """# The papers, run

After this page you can judge each scheme of the four papers by a run in its own regime.

`make papers` prints this page, and `make papers ARGS=--write` writes it. Records are generated from a seed. A
scheme runs through real daemons at three sites where a federation may run it, and in a simulation otherwise;
then the refusal of a federation is below the table. *Error* is the sine of the largest angle to the true
components, or, for the covariance paper, the Frobenius norm of the error of the covariance. *Bound* is the
paper's, with constant 1 and without logarithms of n and d: an order of magnitude. *Default* is the error of
`auto` on the same records at the same epsilon.

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One scheme's outcome. `error` is None if nothing was released; `declined` then has the reason."""

    scheme: Scheme
    n: int
    d: int
    place: str
    error: float | None
    default: float | None
    declined: str = ""
    refusal: str = ""


def study_of(scheme: Scheme, regime: Regime, **changes: Any) -> Study:
    """Return the scheme's study of these records."""
    settings: dict[str, Any] = {
        "algorithm": scheme.algorithm, "epsilon": scheme.epsilon, "delta": DELTA,
        "components": scheme.components,
        "expected_records": len(regime.records), "max_records": max(2 * len(regime.records), SITE_LIMIT),
    }  # fmt: skip
    return Study(
        name="papers",
        columns=regime.columns,
        federation=Federation(sites=scheme.sites),
        **(settings | dict(scheme.settings) | changes),
    )


def error_of(result: Mapping[str, Any], regime: Regime, scheme: Scheme) -> float | None:
    """Return the error of a release's result; None if it released nothing."""
    if result["declined"] is not None:
        return None
    if regime.truth is not None:
        found = np.array(result["components"])
        return sin_angle(found[: len(regime.truth)], regime.truth)
    released = np.array(result["covariance"]) if result["covariance"] is not None else _low_rank(result)
    return float(np.linalg.norm(released - _second_moment(regime.records, scheme)))


def _low_rank(result: Mapping[str, Any]) -> FloatArray:
    components, variances = np.array(result["components"]), np.array(result["explained_variance"])
    return np.asarray((components.T * variances) @ components)


def _second_moment(records: FloatArray, scheme: Scheme) -> FloatArray:
    centred = records - records.mean(axis=0) if scheme.settings.get("centring", True) else records
    return np.asarray(centred.T @ centred / len(records))


def simulated(study: Study, regime: Regime) -> dict[str, Any]:
    """Return the result of a simulation of the study; Oja's algorithm has no guarantee and so no study."""
    if study.algorithm is Algorithm.OJA:
        centred = regime.records - regime.records.mean(axis=0)
        return {"declined": None, "components": oja(centred, study.components)}
    weights = dict.fromkeys(study.federation.sites, 1.0)
    return simulate(study, split_rows(regime.records, weights), seed=SEED).result.to_dict()


def refusal_of(scheme: Scheme, regime: Regime) -> str:
    """Return the message with which a federation of three sites refuses the scheme."""
    study = replace(study_of(scheme, regime), federation=Federation(sites=SITES))
    try:
        make_plan(study, federation="papers", submission="papers")
    except RequestError as problem:
        return str(problem)
    raise AssertionError(f"{scheme.name}: a federation does not refuse it")


def run(scheme: Scheme) -> Row:
    """Run one scheme to its result, and the product's default beside it."""
    regime = scheme.regime(np.random.default_rng(SEED))
    n, d = regime.records.shape
    study, refusal, place = study_of(scheme, regime), "", "simulation"
    if scheme.federated:
        with kept_if_failed() as folder:
            result = federated(study, regime, folder / "run").to_dict()
        place = f"{len(SITES)} daemons"
    else:
        result, refusal = simulated(study, regime), refusal_of(scheme, regime)
    components = scheme.components if regime.truth is None else len(regime.truth)
    usual = study_of(scheme, regime, algorithm=Algorithm.AUTO, components=components, delta=DELTA)
    default = error_of(simulated(replace(usual, federation=Federation(sites=SITES)), regime), regime, scheme)
    return Row(
        scheme=scheme, n=n, d=d, place=place, error=error_of(result, regime, scheme), default=default,
        declined=result["declined"] or "", refusal=refusal,
    )  # fmt: skip


def _number(value: float | None) -> str:
    return "no release" if value is None else "0" if abs(value) < 1e-9 else f"{value:.3g}"


def line(row: Row) -> str:
    """Return the row of the table."""
    scheme = row.scheme
    cells = (
        scheme.paper, f"[`{scheme.name}`](algorithms/{scheme.name}.md)", scheme.claim, row.place,
        f"{row.n:,}", str(row.d), str(scheme.components), f"{scheme.epsilon:g}",
        _number(row.error), "none" if scheme.bound is None else _number(scheme.bound()), _number(row.default),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def page(rows: list[Row]) -> str:
    """Return docs/papers.md."""
    table = [
        "| paper | scheme | its claim | where | n | d | k | epsilon | error | bound | default |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *map(line, rows),
    ]
    refused = [f"- `{row.scheme.name}`: {row.refusal}" for row in rows if row.refusal]
    declined = [f"- `{row.scheme.name}`: {row.declined}" for row in rows if row.declined]
    notes = ["", "## Refused by a federation of three sites", "", *refused]
    notes += ["", "## Ran, and released nothing", "", *declined] if declined else []
    return HEAD + "\n".join([*table, *notes]) + "\n"


def main() -> int:
    """Run the schemes and print the page. Return 1 if one of them came to no result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="three schemes only")
    parser.add_argument("--only", nargs="*", default=[], metavar="SCHEME", help="these schemes only")
    parser.add_argument("--write", action="store_true", help="run all, and write docs/papers.md")
    chosen = parser.parse_args()
    names = () if chosen.write else SMALL if chosen.small else tuple(chosen.only)
    unknown = set(names) - {scheme.name for scheme in SCHEMES}
    if unknown:
        parser.error(f"no scheme of the papers: {', '.join(sorted(unknown))}")
    rows = []
    for scheme in SCHEMES:
        if not names or scheme.name in names:
            rows.append(run(scheme))
            print(line(rows[-1]), file=sys.stderr, flush=True)
    print(page(rows))
    if chosen.write:
        PAGE.write_text(page(rows))
    failed = [row.scheme.name for row in rows if row.error is None or not math.isfinite(row.error)]
    if failed:
        print(f"no result: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
