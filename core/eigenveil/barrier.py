"""The barrier: the only place where a true sum becomes a release. Charge, draw, seal, publish.

A crash between charge and seal may draw again under the same charge, because nothing of the first
draw left the process; after the seal the same bytes are served for ever [P6].
"""

from __future__ import annotations

from typing import Protocol

from eigenveil.errors import Code, InternalError, spoken
from eigenveil.mechanisms import publishable
from eigenveil.noise.source import NoiseSource
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import released, total_length


class Journal(Protocol):
    """Durable memory of a study. `charge` and `seal` return only once their effect is stored."""

    def sealed(self, round: int) -> Release | None:
        """The stored release of a round, if any."""

    def charge(self, query: RoundQuery) -> None:
        """Spend the query's price (no effect if exactly this was charged already)."""

    def seal(self, release: Release) -> None:
        """Store a release; it can never change afterwards."""


def release(
    query: RoundQuery,
    total: IntArray,
    present: tuple[str, ...],
    *,
    plan: Plan,
    journal: Journal,
    noise: NoiseSource,
) -> Release:
    """Turn the exact sum of one round into its release.

    Shape: total as `aggregate` makes it.
    Neighbours: as the plan's study says.
    Sensitivity: of one person's records, at up to max_sites_per_person sites, as the question states it.
    Privacy: [P2], [P6]; charged before anything is drawn, sealed before anything is returned.
    Cost: query.cost.
    """
    if query.plan_digest != plan.digest:
        raise InternalError(Code.BUG, "a query reached the barrier of another plan")
    if total.shape != (total_length(query.ask, len(present)),) or total.dtype.kind != "i":
        raise InternalError(Code.BUG, f"the sum of {spoken(query.round)} has the wrong shape or type")
    done = journal.sealed(query.round)
    if done is not None:
        return _same(done, query)
    journal.charge(query)
    outcome = publishable(query, total, plan.study, noise, present)
    if outcome.values.shape != (released(query.ask),):
        raise InternalError(Code.BUG, f"the release of {spoken(query.round)} has the wrong shape")
    sealed = Release(
        round=query.round,
        query=query.digest,
        values=outcome.values,
        sigma=outcome.sigma,
        micro_rho=query.cost.micro_rho,
        atto_delta=query.cost.atto_delta,
        present=present,
    )
    journal.seal(sealed)
    return sealed


def _same(done: Release, query: RoundQuery) -> Release:
    if done.query != query.digest:
        raise InternalError(Code.BUG, f"{spoken(query.round)} was sealed for another query")
    return done
