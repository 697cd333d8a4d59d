"""Validation of the sites' contributions, and their exact sum. Integer addition is exact and independent of
the order, so the total does not depend on how records are divided among sites. Masked answers are added
modulo 2^64, as int64 arithmetic does. Votes for fingerprints are not added, but concatenated in the order of
the sites' names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eigenveil.errors import Code, PeerError, round_label
from eigenveil.numerics.encoding import IntArray, digest, frozen
from eigenveil.numerics.linalg import HalvesMap
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import PerSiteQuery, Query
from eigenveil.queries.contract import GramAnswer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contribution:
    """Answer of one site to the query of one round. Shape: values (round_query.query.length,). `attempt` is
    the digest of the attempt of masked values; empty for exact ones."""

    plan_digest: str
    round: int
    query: str
    site: str
    values: IntArray
    attempt: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", frozen(self.values))

    @classmethod
    def to(cls, round_query: RoundQuery, site: str, values: IntArray, attempt: str = "") -> Contribution:
        """Return the contribution of `site` to the query of a round."""
        return cls(
            plan_digest=round_query.plan_digest, round=round_query.round, query=round_query.digest,
            site=site, values=values,
            attempt=attempt,
        )  # fmt: skip

    @property
    def digest(self) -> str:
        header = {"plan": self.plan_digest, "round": self.round, "query": self.query, "site": self.site}
        masked = {"attempt": self.attempt} if self.attempt else {}
        return digest("contribution", header | masked, (self.values,))


def validate(
    round_query: RoundQuery,
    contribution: Contribution,
    records: range,
    attempt: str = "",
    apply: HalvesMap = map,
) -> None:
    """Check a contribution without trust in the site, whose number of records lies in `records`. The values
    of a masked `attempt` cannot be checked. `apply` may check halves in parallel. Raises PeerError: another
    plan, round, query or attempt; wrong length; a value that no honest site can have."""
    wrong = _mismatch(round_query, contribution, records, attempt, apply)
    if wrong:
        what = f"site {contribution.site} answered {round_label(round_query.round)} with {wrong}"
        raise PeerError(Code.BAD_CONTRIBUTION, f"{what}; nothing was added")


def _mismatch(
    round_query: RoundQuery, contribution: Contribution, records: range, attempt: str, apply: HalvesMap
) -> str:
    if contribution.plan_digest != round_query.plan_digest:
        return "a contribution for another plan"
    if contribution.round != round_query.round:
        return f"a contribution for {round_label(contribution.round)}"
    if contribution.query != round_query.digest:
        return "a contribution for another query"
    if contribution.attempt != attempt:
        return "a contribution for another attempt, or for none"
    if contribution.values.shape != (round_query.query.length,):
        return f"{contribution.values.size} numbers instead of {round_query.query.length}"
    if not attempt and not _is_plausible(round_query.query, contribution.values, records, apply):
        return "values that its number of clipped records cannot have"
    return ""


def _is_plausible(query: Query, values: IntArray, records: range, apply: HalvesMap) -> bool:
    if isinstance(query, GramAnswer):  # takes longer than all others
        return query.is_plausible(values, records, apply)
    return query.is_plausible(values, records)


class RunningTotal:
    """Sum of the validated answers to one query so far, or the votes by site. The caller must add each answer
    once, and completely [0031]."""

    def __init__(self, round_query: RoundQuery) -> None:
        self._query = round_query.query
        self._sum = np.zeros(
            0 if isinstance(round_query.query, PerSiteQuery) else round_query.query.length, dtype=np.int64
        )
        self._votes: dict[str, IntArray] = {}

    def add(self, site: str, values: IntArray) -> None:
        """Add one site's answer; only the sum is stored, except for votes."""
        if isinstance(self._query, PerSiteQuery):
            self._votes[site] = values
        else:
            self._sum += values

    def whole(self) -> IntArray:
        """Return the exact sum over sites, or their votes in the order of the sites' names; no more is added.
        Shape: (total_length(round_query.query, sites),); zeros if no site answered."""
        if self._votes:
            return frozen(np.concatenate([self._votes[site] for site in sorted(self._votes)]))
        self._sum.setflags(write=False)
        return self._sum


def aggregate(round_query: RoundQuery, contributions: Mapping[str, IntArray]) -> IntArray:
    """Return the `RunningTotal` of complete contributions."""
    total = RunningTotal(round_query)
    for site, values in contributions.items():
        total.add(site, values)
    return total.whole()
