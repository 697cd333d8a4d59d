"""The barrier: the only place where a true sum becomes a release. Draw, charge and seal at once, publish.

A crash before the seal may draw again: nothing of the first draw left the process, not even that it was
there, and nothing that could end the process has seen it, the algorithm least of all. After the seal the
price is charged and the same bytes are served for ever; the caller feeds them to the algorithm [P6] [P27].
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
    """Durable memory of a study. `seal` and `charge` return only once their effect is stored."""

    def sealed(self, round: int) -> Release | None:
        """The stored release of a round, if any."""

    def seal(self, asked: RoundQuery, release: Release) -> None:
        """Spend the query's price and store its release, which never changes afterwards: both or neither."""

    def charge(self, asked: RoundQuery) -> None:
        """Spend the price alone (no effect if exactly this was charged already)."""


def release(
    asked: RoundQuery,
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
    Privacy: [P2], [P6]; charged and sealed before anything is returned, and charged before anybody is told
    that a draw failed.
    Cost: asked.cost.
    """
    if asked.plan_digest != plan.digest:
        raise InternalError(Code.BUG, "a query reached the barrier of another plan")
    if total.shape != (total_length(asked.query, len(present)),) or total.dtype.kind != "i":
        raise InternalError(Code.BUG, f"the sum of {spoken(asked.round)} has the wrong shape or type")
    done = journal.sealed(asked.round)
    if done is not None:
        if done.query != asked.digest:
            raise InternalError(Code.BUG, f"{spoken(asked.round)} was sealed for another query")
        return done
    try:
        outcome = publishable(asked, total, plan.study, noise, present)
        del total  # a long one is not in memory any more while its release is stored
        if outcome.values.shape != (released(asked.query),):
            raise InternalError(Code.BUG, f"the release of {spoken(asked.round)} has the wrong shape")
        sealed = Release.of(asked, outcome.values, outcome.sigma, present)
    except Exception:
        journal.charge(asked)  # that it failed may tell of the draw, or of the sum
        raise
    journal.seal(asked, sealed)
    return sealed
