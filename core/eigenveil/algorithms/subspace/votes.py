"""What the algorithms of [SUB] share: their shares of epsilon, the count, and fetching what won."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from eigenveil.accounting.zcdp import ATTO, mu
from eigenveil.algorithms.shared.preparation import FEWEST
from eigenveil.numerics.encoding import FloatArray, IntArray, digest, frozen
from eigenveil.protocol.estimate import Estimate
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseLaw, PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import Count, Preimage, Trusted
from eigenveil.queries.fingerprints import Cells, Pool, Subsamples
from eigenveil.study.price import micro_rho_of

COUNT_SHARE = 0.05  # of epsilon
FETCH = 1  # micro-rho: what fetching costs, so that every question has a price
ROUNDED = 1 - 1e-9  # pays for rounding epsilons up when they are added


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteBudget:
    """What a plan has for votes: epsilon beside the count and fetching, and the whole delta."""

    epsilon: float
    atto_delta: int

    @property
    def delta(self) -> float:
        return self.atto_delta / ATTO

    def share(self, share: float) -> int:
        return micro_rho_of(self.epsilon * share)


def purse(plan: Plan) -> VoteBudget:
    """What is left for votes. At an epsilon that the fetching alone would use up, nothing is: the price is
    then below one micro-rho, which is refused.
    """
    left = mu(plan.micro_rho) * (1 - COUNT_SHARE) * ROUNDED - mu(FETCH) * (2 - ROUNDED)
    return VoteBudget(epsilon=max(left, 0.0), atto_delta=plan.atto_delta)


def changed(plan: Plan) -> int:
    """Subsamples that one person's records are in: one at each of their sites, two when replaced."""
    study = plan.study
    return study.max_sites_per_person * study.neighbours.records


def votes_needed(epsilon: float, delta: float, votes: int, appearing: int) -> float:
    """About how many equal votes are released for almost sure: the threshold, and six times the noise.

    `votes`: how much one person changes the counts in all; `appearing`: by how much upwards.
    """
    scale = votes / epsilon
    return appearing + scale * (math.log(appearing / (2 * delta)) + 6)


def deal_key(plan: Plan) -> IntArray:
    """The key that deals records into subsamples, and places the grid. Shape: (4,)."""
    text = digest("blocks", {"plan": plan.digest})
    return np.frombuffer(bytes.fromhex(text), dtype="<i8").astype(np.int64)


def count(plan: Plan) -> Generator[PricedQuery, Release, tuple[float, int]]:
    """The noised number of records, and how many sites answered.

    Cost: 5 % of epsilon.
    """
    price = micro_rho_of(mu(plan.micro_rho) * COUNT_SHARE * ROUNDED)
    release = yield PricedQuery(query=Count(), micro_rho=price, law=NoiseLaw.LAPLACE)
    return max(float(release.values[0]), FEWEST), max(1, len(release.present))


def voted(
    plan: Plan, query: Trusted, share: float = 1.0
) -> Generator[PricedQuery, Release, tuple[IntArray, IntArray]]:
    """What won the vote, zeros if nothing did; and the places of the sites that voted. Shape: (released,),
    (m,).
    """
    left = purse(plan)
    release = yield PricedQuery(query=query, micro_rho=left.share(share), atto_delta=left.atto_delta)
    places = {site: place for place, site in enumerate(plan.study.federation.sites)}
    return release.values, frozen(sorted(places[site] for site in release.present))


def fetch(
    fingerprint: IntArray, holders: IntArray, source: Subsamples | Cells | Pool
) -> Generator[PricedQuery, Release, IntArray | None]:
    """The values that a released fingerprint stands for; None if a holder is gone. Shape: (source.size,).

    Privacy: [P18].
    """
    query = Preimage(
        fingerprint=fingerprint,
        holders=holders,
        subsamples=source if isinstance(source, Subsamples) else None,
        cells=source if isinstance(source, Cells) else None,
        pool=source if isinstance(source, Pool) else None,
    )
    release = yield PricedQuery(query=query, micro_rho=FETCH, law=NoiseLaw.LAPLACE)
    return release.values[1:] if release.values[0] else None


GONE = (
    "a subspace won, but a site that had voted did not answer again, so what it stands for is not known; "
    "run the study again"
)


def subspace_estimate(
    plan: Plan, components: FloatArray, records: float, *, sin_error: float, warnings: tuple[str, ...]
) -> Estimate:
    """An estimate of the subspace alone: no variances are asked for. Shape: components (k, d)."""
    if plan.study.centring:
        through = "the subspace goes through the middle of the bounds; nothing was centred"
        warnings = (*warnings, through)
    return Estimate(
        components=components,
        explained_variance=np.zeros(len(components)),
        mean=np.zeros(plan.study.dimension),
        records=records,
        total_variance=0.0,
        noise_scale=0.0,
        sin_error=sin_error,
        warnings=(
            *warnings,
            "only the subspace is estimated: no variances, and no order among its directions",
        ),
    )
