"""Barrier: the only place where a true sum becomes a release, or a number of persons a noised one. Draw,
charge and seal in one step, publish. After a crash before the seal, noise may be drawn again. The first draw
never left the process, and no code that could end the process has used it. After the seal, the cost is
charged and the same bytes are always served; the caller feeds them to the algorithm [P6] [P27] [P34]."""

from __future__ import annotations

from typing import Protocol

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.errors import Code, InternalError, round_label
from eigenveil.mechanisms import apply_mechanism
from eigenveil.noise.source import NoiseSource, noise_spec
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import Release
from eigenveil.queries import Count, released_length, total_length


class Journal(Protocol):
    """Durable storage of a study. `seal` and `charge` return after their effect is stored."""

    def sealed(self, round: int) -> Release | None:
        """Return the stored release of a round, or None."""

    def seal(self, round_query: RoundQuery, release: Release) -> None:
        """Charge the query's cost and store its release, which never changes afterwards: both or neither."""

    def charge(self, round_query: RoundQuery) -> None:
        """Charge the cost only; no effect if this query was charged already."""


def release(
    round_query: RoundQuery,
    total: IntArray,
    present: tuple[str, ...],
    *,
    plan: Plan,
    journal: Journal,
    noise: NoiseSource,
) -> Release:
    """Return the release of one round from its exact sum.
    Shape: total as `RunningTotal.whole` returns it.
    Neighbours: the relation of the plan's study.
    Sensitivity: that of the query, for one person's records at up to max_sites_per_person sites.
    Privacy: [P2], [P6]; charged and sealed before the return, and charged before the error of a draw.
    Cost: round_query.cost."""
    if round_query.plan_digest != plan.digest:
        raise InternalError(Code.BUG, "the query belongs to another plan than the barrier's")
    if total.shape != (total_length(round_query.query, len(present)),) or total.dtype.kind != "i":
        raise InternalError(
            Code.BUG, f"the sum of {round_label(round_query.round)} has the wrong shape or type"
        )
    stored = journal.sealed(round_query.round)
    if stored is not None:
        if stored.query != round_query.digest:
            raise InternalError(Code.BUG, f"{round_label(round_query.round)} was sealed for another query")
        return stored
    try:
        outcome = apply_mechanism(round_query.priced, total, plan.study, noise, present)
        del total  # frees the memory while the release is stored
        if outcome.values.shape != (released_length(round_query.query),):
            raise InternalError(
                Code.BUG, f"the release of {round_label(round_query.round)} has the wrong shape"
            )
        sealed = Release.of(round_query, outcome.values, outcome.sigma, present)
    except Exception:
        journal.charge(round_query)  # the failure may reveal the draw or the sum
        raise
    journal.seal(round_query, sealed)
    return sealed


class CountJournal(Protocol):
    """Durable storage of a site's noised number of persons. `seal` returns after its effect is stored."""

    def sealed(self) -> int | None:
        """Return the stored number, or None."""

    def seal(self, noised: int) -> int:
        """Charge the cost and store the number, which never changes afterwards: both or neither. Return the
        number that is stored: that of another process, if it was first."""


def release_person_count(
    persons: int, micro_rho: int, *, journal: CountJournal, noise: NoiseSource
) -> tuple[int, float]:
    """Return the noised number of persons of one site, and the standard deviation of its noise. It is drawn
    once: what is sealed is returned ever after, whatever `persons` is then.

    Neighbours: add-remove, of the site's records.
    Sensitivity: 1; one person's rows change the number of persons by at most one [P30].
    Privacy: [P34] rounded Gaussian noise [P2], charged and sealed before the return.
    Cost: `micro_rho`, of the site's budget."""
    spec = noise_spec(Count(), micro_rho, Neighbours.ADD_REMOVE)
    stored = journal.sealed()
    if stored is None:
        stored = journal.seal(persons + int(noise.draw(spec)[0]))
    return stored, spec.sigma
