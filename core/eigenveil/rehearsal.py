"""Which questions a plan will ask, found by running its algorithm on imagined releases.

No data is involved: the imagined releases are built from public numbers of the plan. The number of
rounds and every price are exact as long as the algorithm does not adapt them to what was released.
"""

from __future__ import annotations

import numpy as np

from eigenveil.asks import Ask, Count, Energy, GradientNorms, Gram, RowNorms, Spectrum
from eigenveil.ints import IntArray, frozen
from eigenveil.plan import Plan
from eigenveil.query import Query
from eigenveil.release import Release
from eigenveil.session import Session


def rehearse(plan: Plan) -> tuple[Query, ...]:
    """The queries the plan asks when the federation holds `expected_records` unremarkable records."""
    session = Session(plan)
    asked: list[Query] = []
    while (query := session.pending) is not None:
        asked.append(query)
        session.feed(_imagined(query, plan))
    return tuple(asked)


def _imagined(query: Query, plan: Plan) -> Release:
    return Release(
        round=query.round,
        query=query.digest,
        values=_values(query.ask, plan.study.expected_records),
        sigma=1.0,
        micro_rho=query.cost.micro_rho,
        atto_delta=query.cost.atto_delta,
        present=plan.study.federation.sites,
    )


def _values(ask: Ask, n: int) -> IntArray:
    match ask:
        case Count():
            return frozen([n])
        case RowNorms() | GradientNorms():
            return frozen(n * (np.arange(ask.length) == ask.length // 2))
        case Energy():
            return frozen([n * ask.radius**2 // 4])
        case Gram():
            d = ask.centre.size
            diagonal = n * ask.radius**2 // (4 * d) // (1 + np.arange(d))
            return frozen(np.concatenate([diagonal, np.zeros(ask.length - d, dtype=np.int64)]))
        case Spectrum():
            return frozen(n * ask.radius**2 // (4 * ask.released) // (1 + np.arange(ask.released)))
        case _:
            return frozen((n * ask.bound() // 8 // (1 + np.arange(ask.length))).astype(np.int64))
