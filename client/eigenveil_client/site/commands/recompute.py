"""The numbers of an answer that left, computed again: a site keeps no copy of them.

Answers are exact, so the same records give the same bytes; the keyed digest in the egress ledger says
whether they did.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.numerics.encoding import IntArray, octets
from eigenveil.protocol.plan import plan_from_json
from eigenveil.protocol.query import RoundQuery
from eigenveil.study.study import Study
from eigenveil_client.site.engine.contract import Engine
from eigenveil_client.site.state.egress import Row
from eigenveil_client.site.state.store import SiteStore


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Numbers:
    """What `row` sent. Shape: values (query.ask.length,)."""

    row: Row
    query: RoundQuery
    study: Study
    values: IntArray


def again(store: SiteStore, row: Row, engine: Engine) -> Numbers:
    """Compute the answer of `row` once more.

    Raises:
        RequestError: code `not-found`, no numbers left with it, or masked ones; `conflict`, the records are
            not those that it was computed from; or the records cannot be read.
        InternalError: the ledger names a question or a plan that is not here.
    """
    _check_exact(row)
    asked, seen = store.egress.question(row), store.studies.get(row.study)
    if seen is None:
        raise InternalError(Code.STORAGE, f"the plan of row {row.index} is not here; restore the state")
    plan = plan_from_json(seen.plan_json)
    with closing(engine.load(plan)) as held:
        values = held.answer(asked.query, asked.frame)
    if store.fingerprints.of_answer(asked, octets(values)) != row.contribution:
        raise RequestError(
            Code.CONFLICT,
            f"the records have changed since row {row.index} was sent, so its numbers cannot be shown again; "
            "put the records of that day in place",
        )
    return Numbers(row=row, query=asked, study=plan.study, values=values)


def _check_exact(row: Row) -> None:
    if not row.answers:
        raise RequestError(Code.NOT_FOUND, f"no number left with row {row.index}")
    if row.masked:
        raise RequestError(
            Code.NOT_FOUND,
            f"row {row.index} sent a masked answer, which cannot be computed again: fresh noise and masks "
            "went into it. To whoever has it alone it is noise; its keyed digest names what left",
        )
