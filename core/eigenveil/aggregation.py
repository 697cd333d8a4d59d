"""From the sites' contributions to one exact sum: validation first, then integer addition. (Votes for
fingerprints are not added up: they stand one after the other, in the order of the sites' names.)

Integer addition is exact and order-free, so no arrangement of sites can be told from the total. Masked
answers are added modulo 2^64, as int64 does by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eigenveil.errors import Code, PeerError, spoken
from eigenveil.numerics.encoding import IntArray, digest, frozen
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import PerSite


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contribution:
    """What one site sends for one round. Shape: values (asked.query.length,). `attempt` is the digest of the
    attempt that masked values are for; empty where they are exact."""

    plan_digest: str
    round: int
    query: str
    site: str
    values: IntArray
    attempt: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", frozen(self.values))

    @classmethod
    def to(cls, asked: RoundQuery, site: str, values: IntArray, attempt: str = "") -> Contribution:
        """What `site` sends to `asked`."""
        return cls(
            plan_digest=asked.plan_digest, round=asked.round, query=asked.digest, site=site, values=values,
            attempt=attempt,
        )  # fmt: skip

    @property
    def digest(self) -> str:
        header = {
            "plan": self.plan_digest,
            "round": self.round,
            "query": self.query,
            "site": self.site,
        }
        masked = {"attempt": self.attempt} if self.attempt else {}
        return digest("contribution", header | masked, (self.values,))


def validate(asked: RoundQuery, contribution: Contribution, records: range, attempt: str = "") -> None:
    """Check everything that can be checked without trusting the site; `records` is where its number lies. Of
    masked values, for that `attempt`, nobody can say what they may be.

    Raises:
        PeerError: another plan, round or query; wrong length; a value no honest site can have.
    """
    wrong = _mismatch(asked, contribution, attempt)
    if wrong:
        raise PeerError(
            Code.BAD_CONTRIBUTION,
            f"site {contribution.site} answered {spoken(asked.round)} with {wrong}; nothing was added",
        )
    if not attempt and not asked.query.possible(contribution.values, records):
        raise PeerError(
            Code.BAD_CONTRIBUTION,
            f"site {contribution.site} answered {spoken(asked.round)} with values that "
            "clipped records of its number cannot add up to; nothing was added",
        )


def _mismatch(asked: RoundQuery, contribution: Contribution, attempt: str) -> str:
    if contribution.plan_digest != asked.plan_digest:
        return "a contribution for another plan"
    if contribution.round != asked.round:
        return f"a contribution for {spoken(contribution.round)}"
    if contribution.query != asked.digest:
        return "a contribution for another query"
    if contribution.attempt != attempt:
        return "a contribution for another set of sites, or for none"
    if contribution.values.shape != (asked.query.length,):
        return f"{contribution.values.size} numbers where {asked.query.length} are due"
    return ""


class Total:
    """What validated answers to one query come to so far: one sum, however many there are, or votes by site.

    Each is added once; that is for the caller to see to, and that it is added to its end [0031].
    """

    def __init__(self, asked: RoundQuery) -> None:
        self._query = asked.query
        self._sum = np.zeros(0 if isinstance(asked.query, PerSite) else asked.query.length, dtype=np.int64)
        self._votes: dict[str, IntArray] = {}

    def add(self, site: str, values: IntArray) -> None:
        """Add one site's answer; nothing of it is kept but the sum, unless it is votes."""
        if isinstance(self._query, PerSite):
            self._votes[site] = values
        else:
            self._sum += values

    def whole(self) -> IntArray:
        """The exact sum over sites, or their votes in the order of the sites' names; nothing is added to it
        any more.

        Shape: (total_length(asked.query, sites),); zeros if nobody answered.
        """
        if self._votes:
            return frozen(np.concatenate([self._votes[site] for site in sorted(self._votes)]))
        self._sum.setflags(write=False)
        return self._sum


def aggregate(asked: RoundQuery, contributions: Mapping[str, IntArray]) -> IntArray:
    """The `Total` of contributions that are all here."""
    total = Total(asked)
    for site, values in contributions.items():
        total.add(site, values)
    return total.whole()
