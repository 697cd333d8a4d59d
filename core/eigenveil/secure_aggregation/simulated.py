"""Masked rounds of simulated sites, with noise shares, masks, sums and drop-outs as in a federation. Only the
keys differ: they are derived from the sites' names. So masks protect nothing in a simulation, which is one
process anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from eigenveil.errors import Code, RequestError, round_label
from eigenveil.noise.seeded import SeededNoise
from eigenveil.noise.source import OsNoise, share_spec
from eigenveil.numerics.encoding import IntArray, digest, frozen
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.secure_aggregation.masking import Attempt, add_mask, mask_key, masked
from eigenveil.simulated_sites import ContributionSum, SumFactory
from eigenveil.site.site import Site
from eigenveil.study.study import Study

PAIRS = 2**17  # cached secrets


# Returns the members of an attempt, without the sites lost before, or raises `study-failed`: too few.
AvailableSites = Callable[[RoundQuery, Sequence[str], int], tuple[str, ...]]


class AttemptJournal(Protocol):
    """Journal that charges the attempts at masked rounds."""

    def may_attempt(self, round_query: RoundQuery, number: int) -> bool:
        """Return True if the study pays for an attempt with this number."""

    def attempt(self, round_query: RoundQuery, number: int) -> None:
        """Charge an attempt."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoalitionView:
    """View of an attempt by the coordinator and colluding sites: the most that they can compute.

    `values` is the sum of the messages of the `honest` sites, without the masks known to the coalition. With
    all honest members, it is the sum of their exact answers and noise shares. If one is missing, its masks
    remain in the sum, which is then pseudorandom [P31]."""

    round: int
    attempt: int
    honest: tuple[str, ...]
    values: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """Masking of each site's exact answer: its noise share and its masks with all others. `seed` makes each
    share reproducible, independently of the order of the sites."""

    round_query: RoundQuery
    study: Study
    masked_attempt: Attempt
    seed: int | None

    @property
    def attempt(self) -> str:
        return self.masked_attempt.digest

    def __call__(self, site: str, values: IntArray) -> IntArray:
        order = [self.seed, self.attempt, site]
        source = OsNoise() if self.seed is None else SeededNoise(int(digest("simulated-share", order), 16))
        share = source.draw(share_spec(self.round_query.priced, self.study, len(self.masked_attempt.members)))
        secrets = {other: secret(site, other) for other in self.masked_attempt.sites if other != site}
        return masked(values, share, site, secrets, self.masked_attempt)


class MaskedRounds:
    """Attempts at the rounds of a study: their members, unavailable sites and sums.

    Its method `present`, for `run_study`, fixes the members, charges the attempt and retries without sites
    that are `lost`: a map from a round (from 0) to the sites lost in each attempt. Its method
    `sum_factory` gives the sum of the last attempt. `coalition_views` are the views of the coordinator and
    the `colluding` sites."""

    def __init__(
        self,
        plan: Plan,
        fix: AvailableSites,
        journal: AttemptJournal,
        hold: SumFactory,
        *,
        seed: int | None,
        lost: Mapping[int, Sequence[Sequence[str]]],
        colluding: Sequence[str],
    ) -> None:
        self.coalition_views: list[CoalitionView] = []
        self._study, self._fix, self._journal, self._sum_factory = plan.study, fix, journal, hold
        self._seed, self._lost, self._colluding = seed, lost, frozenset(colluding)
        self._sum = frozen(np.zeros(0, dtype=np.int64))

    def sum_factory(self, sites: Mapping[str, Site], plan: Plan) -> ContributionSum:
        """Return a function with the sum of the last attempt of `present`."""
        self._sum_contributions = self._sum_factory(sites, plan)
        return lambda round_query, present, mask=None: self._sum

    def present(self, round_query: RoundQuery) -> tuple[str, ...]:
        """Return the members of the first attempt in which no site is lost. Raises RequestError: code
        `study-failed`: too few sites are left, or the pool pays for no further attempt."""
        lost_sites: list[str] = []
        number = 0
        while self._journal.may_attempt(round_query, number + 1):
            number += 1
            members = self._fix(round_query, lost_sites, number)
            attempt = attempt_of(round_query, number, members)
            self._journal.attempt(round_query, number)
            attempts = self._lost.get(round_query.round, ())
            lost = [site for site in members if site in chain(*attempts[number - 1 : number])]
            if self._colluding or not lost:  # otherwise the sum is not used
                self._sum = self._sum_sent(
                    round_query, attempt, [site for site in members if site not in lost]
                )
            if not lost:
                return members
            lost_sites += lost
        raise RequestError(
            Code.STUDY_FAILED,
            f"{round_label(round_query.round)} lost {', '.join(lost)} in attempt {number}, and no spare "
            "attempt is left; all attempts remain charged. To continue without lost sites, "
            f"{self._study.federation.further_attempts}",
        )

    def _sum_sent(self, round_query: RoundQuery, attempt: Attempt, answering: Sequence[str]) -> IntArray:
        """Return the sum of the messages of the sites that answer, and record the coalition's view."""
        mask = Masking(round_query=round_query, study=self._study, masked_attempt=attempt, seed=self._seed)
        honest = tuple(site for site in answering if site not in self._colluding)
        total = self._sum_contributions(round_query, honest, mask)
        if not self._colluding:
            return total
        known = unmasked(total, honest, self._colluding & attempt.members.keys(), attempt)
        self.coalition_views.append(
            CoalitionView(round=round_query.round, attempt=attempt.number, honest=honest, values=known)
        )
        others = [site for site in answering if site in self._colluding]
        return total + self._sum_contributions(
            round_query, others, mask
        )  # modulo 2^64, as int64 is by itself


def attempt_of(round_query: RoundQuery, number: int, members: Iterable[str]) -> Attempt:
    """Return an attempt with simulated sites, whose keys are stated by digests of their public keys."""
    public = {site: simulated_key(site).public_key().public_bytes_raw() for site in members}
    keys = {site: digest("simulated-key-statement", key.hex()) for site, key in public.items()}
    return Attempt.at(round_query, number, keys)


def unmasked(total: IntArray, honest: Sequence[str], colluding: Iterable[str], attempt: Attempt) -> IntArray:
    """Return the sum of the `honest` sites' messages without their masks with the `colluding` sites. Shape:
    total (n,) -> (n,). Cost: one stream of 8 n bytes for each pair."""
    known = total.copy()
    for other in colluding:
        for site in honest:
            key = mask_key(secret(other, site), attempt, other, site)
            add_mask(known.view(np.uint64), key, negative=other < site)  # which `site` had added
    return frozen(known)


@lru_cache(maxsize=PAIRS)
def _secret(first: str, second: str) -> bytes:
    return simulated_key(first).exchange(simulated_key(second).public_key())


def secret(site: str, other: str) -> bytes:
    """Return the shared secret of two simulated sites; it is symmetric."""
    return _secret(*sorted((site, other)))


@lru_cache(maxsize=1024)
def simulated_key(site: str) -> X25519PrivateKey:
    """Return the key of a simulated site, which is derived from its name and so not secret."""
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(digest("simulated-key", site)))
