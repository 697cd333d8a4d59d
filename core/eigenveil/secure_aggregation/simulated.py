"""Masked rounds of imagined sites: real shares of noise, real masks and sums, drop-outs at every step.

The sites' keys are derived from their names, so that anybody can take these masks away: in a simulation they
protect nothing, and all of it is in one process anyway. Everything else is what a federation does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from eigenveil.contributing import Hold, Together
from eigenveil.errors import Code, RequestError, spoken
from eigenveil.noise.seeded import SeededNoise
from eigenveil.noise.shares import share_spec
from eigenveil.noise.source import NoiseSource, OsNoise
from eigenveil.numerics.encoding import IntArray, digest, frozen
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.secure_aggregation.attempt import Attempt
from eigenveil.secure_aggregation.masks import add_mask, mask_key, masked
from eigenveil.site.site import Site
from eigenveil.study.study import Study

PAIRS = 2**17  # whose secrets are kept


class Present(Protocol):
    """Who is there when the set of an attempt is fixed."""

    def __call__(self, asked: RoundQuery, lost: Sequence[str], attempts: int) -> tuple[str, ...]:
        """The sites of the set, without those that were `lost` in the attempts before this one.

        Raises:
            RequestError: code `study-failed`: too few.
        """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoalitionView:
    """The view of the coordinator and the sites that collude with it: all that they can compute of an attempt
    at a round, the sum of what the `honest` sites sent, without the masks that they know.

    If every honest site of the set is among these, it is their exact answers and their shares of the noise,
    and nothing else; if one is missing, its masks are in the sum, and it is noise [P31].
    """

    round: int
    attempt: int
    honest: tuple[str, ...]
    values: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """What each site does with its exact answer: its share of the noise and its masks with all others.

    `seed` makes shares reproducible, each by itself, so that it does not matter who draws first.
    """

    asked: RoundQuery
    study: Study
    of: Attempt
    seed: int | None

    @property
    def attempt(self) -> str:
        return self.of.digest

    def __call__(self, site: str, values: IntArray) -> IntArray:
        share = self._source(site).draw(share_spec(self.asked, self.study, len(self.of.members)))
        secrets = {other: secret(site, other) for other in self.of.sites if other != site}
        return masked(values, share, site, secrets, self.of)

    def _source(self, site: str) -> NoiseSource:
        if self.seed is None:
            return OsNoise()
        return SeededNoise(int(digest("simulated-share", [self.seed, self.attempt, site]), 16))


class MaskedRounds:
    """The attempts at the rounds of a study: who is in which, who is lost in it, and what is added up.

    As `present` of `run_study` it fixes a set, charges the attempt, and tries again without those that are
    `lost` (round, from 0 -> the sites of each attempt); as `hold` it gives the sum of the last attempt.
    `seen` is what the coordinator and the sites `colluding` with it can compute.
    """

    def __init__(
        self,
        plan: Plan,
        fix: Present,
        charge: Callable[[RoundQuery, int], None],
        hold: Hold,
        *,
        seed: int | None,
        lost: Mapping[int, Sequence[Sequence[str]]],
        colluding: Sequence[str],
    ) -> None:
        self.seen: list[CoalitionView] = []
        self._study, self._fix, self._charge, self._held = plan.study, fix, charge, hold
        self._seed, self._lost, self._colluding = seed, lost, frozenset(colluding)
        self._sum = frozen(np.zeros(0, dtype=np.int64))

    def hold(self, sites: Mapping[str, Site], plan: Plan) -> Together:
        """The sum of the attempt that `present` ended with."""
        self._together = self._held(sites, plan)
        return lambda asked, present, mask=None: self._sum

    def present(self, asked: RoundQuery) -> tuple[str, ...]:
        """The sites whose masked answers are all there, after as many attempts as that takes.

        Raises:
            RequestError: code `study-failed`: too few sites are left, or no attempt.
        """
        gone: list[str] = []
        for number in range(1, self._study.attempts + 1):
            members = self._fix(asked, gone, number)
            attempt = attempt_of(asked, number, members)
            self._charge(asked, number)
            lost = [site for site in members if site in self._lost_in(asked.round, number)]
            if self._colluding or not lost:  # else nobody can do anything with what was sent
                self._sum = self._sent(asked, attempt, [site for site in members if site not in lost])
            if not lost:
                return members
            gone += lost
        raise RequestError(
            Code.STUDY_FAILED,
            f"{spoken(asked.round)} lost {', '.join(lost)} in attempt {number} of {number}, and what was "
            f"attempted stays charged; {self._study.federation.further_attempts}",
        )

    def _lost_in(self, round: int, number: int) -> Sequence[str]:
        attempts = self._lost.get(round, ())
        return attempts[number - 1] if number <= len(attempts) else ()

    def _sent(self, asked: RoundQuery, attempt: Attempt, there: Sequence[str]) -> IntArray:
        """The sum of what the sites that are `there` sent, and what colluding ones can make of it."""
        mask = Masking(asked=asked, study=self._study, of=attempt, seed=self._seed)
        honest = tuple(site for site in there if site not in self._colluding)
        total = self._together(asked, honest, mask)
        if not self._colluding:
            return total
        known = unmasked(total, honest, self._colluding & attempt.members.keys(), attempt)
        self.seen.append(
            CoalitionView(round=asked.round, attempt=attempt.number, honest=honest, values=known)
        )
        others = [site for site in there if site in self._colluding]
        return total + self._together(asked, others, mask)  # modulo 2^64, as int64 is by itself


def attempt_of(asked: RoundQuery, number: int, members: Iterable[str]) -> Attempt:
    """An attempt at a question with imagined sites, whose cards are their public keys."""
    public = {site: _key(site).public_key().public_bytes_raw() for site in members}
    cards = {site: digest("simulated-card", key.hex()) for site, key in public.items()}
    return Attempt.at(asked, number, cards)


def unmasked(total: IntArray, honest: Sequence[str], colluding: Iterable[str], attempt: Attempt) -> IntArray:
    """What the `honest` sites sent, added up, without their masks with the `colluding` ones.

    Shape: total (n,) -> (n,). Cost: one stream of 8 n bytes for each pair.
    """
    known = total.copy()
    for other in colluding:
        for site in honest:
            key = mask_key(secret(other, site), attempt, other, site)
            add_mask(known.view(np.uint64), key, negative=other < site)  # which `site` had added
    return frozen(known)


@lru_cache(maxsize=PAIRS)
def _secret(first: str, second: str) -> bytes:
    return _key(first).exchange(_key(second).public_key())


def secret(site: str, other: str) -> bytes:
    """What two imagined sites share: `site` from its own key, as from the other's."""
    return _secret(*sorted((site, other)))


@lru_cache(maxsize=1024)
def _key(site: str) -> X25519PrivateKey:
    """An imagined site's key: derived from its name, so no secret at all."""
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(digest("simulated-key", site)))
