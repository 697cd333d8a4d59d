"""From the sites' contributions to one exact sum: validation first, then integer addition. (Votes for
fingerprints are not added up: they stand one after the other, in the order of the sites' names.)

Integer addition is exact and order-free, so no arrangement of sites can be told from the total.
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
    """What one site sends for one round. Shape: values (asked.query.length,)."""

    plan_digest: str
    round: int
    query: str
    site: str
    values: IntArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", frozen(self.values))

    @property
    def digest(self) -> str:
        header = {
            "plan": self.plan_digest,
            "round": self.round,
            "query": self.query,
            "site": self.site,
        }
        return digest("contribution", header, (self.values,))


def validate(asked: RoundQuery, contribution: Contribution, records: range) -> None:
    """Check everything that can be checked without trusting the site; `records` is where its number lies.

    Raises:
        PeerError: another plan, round or query; wrong length; a value no honest site can have.
    """
    wrong = _mismatch(asked, contribution)
    if wrong:
        raise PeerError(
            Code.BAD_CONTRIBUTION,
            f"site {contribution.site} answered {spoken(asked.round)} with {wrong}; nothing was added",
        )
    if not asked.query.possible(contribution.values, records):
        raise PeerError(
            Code.BAD_CONTRIBUTION,
            f"site {contribution.site} answered {spoken(asked.round)} with values that "
            "clipped records of its number cannot add up to; nothing was added",
        )


def _mismatch(asked: RoundQuery, contribution: Contribution) -> str:
    if contribution.plan_digest != asked.plan_digest:
        return "a contribution for another plan"
    if contribution.round != asked.round:
        return f"a contribution for {spoken(contribution.round)}"
    if contribution.query != asked.digest:
        return "a contribution for another query"
    if contribution.values.shape != (asked.query.length,):
        return f"{contribution.values.size} numbers where {asked.query.length} are due"
    return ""


def aggregate(asked: RoundQuery, contributions: Mapping[str, IntArray]) -> IntArray:
    """The exact sum over sites, or their votes one after the other.

    Shape: (total_length(asked.query, sites),); zeros if nobody answered.
    """
    if isinstance(asked.query, PerSite):
        nothing = np.zeros(0, dtype=np.int64)
        return frozen(np.concatenate([nothing, *(contributions[site] for site in sorted(contributions))]))
    total = np.zeros(asked.query.length, dtype=np.int64)
    for site in sorted(contributions):
        total += contributions[site]
    return frozen(total)
