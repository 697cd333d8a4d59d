"""View of a coordinator on masked rounds together with colluding sites, which tell it their masks and draw no
noise [P31] [P32] [P33]. Shares and masks are the product's; m releases are one long answer, under one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from eigenveil.noise.source import NoiseSource, share_spec
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.queries import AdditiveQuery
from eigenveil.secure_aggregation.masking import masked
from eigenveil.secure_aggregation.simulated import attempt_of, secret
from eigenveil.site.site import Site
from eigenveil.study.grid import GridRows
from eigenveil.study.study import Study, Trust
from tests.core.queries.kinds import ADD, FEW, GRAM, SUM, moves
from tests.statistical.audit import Gaussian, Mechanism
from tests.statistical.mechanisms import LEVEL, Stacked, at_cost, score
from tests.support import a_study

PAIR = moves(FEW, [4096, 0])  # a site's records without one, and with it
OF_GRAM = moves(FEW, [2400, 3200])
LATER = math.sqrt(2)  # in mu, what a second attempt costs
Sent = Mapping[str, IntArray]


@dataclass(frozen=True, kw_only=True)
class MaskedAttempts:
    """Attempts at one query by sites a, b, c, ..., of which the last `colluding` collude."""

    sites: int = 4
    colluding: int = 1
    query: AdditiveQuery = SUM
    data: tuple[GridRows, GridRows] = PAIR

    @property
    def names(self) -> str:
        return "abcdefg"[: self.sites]

    @property
    def study(self) -> Study:
        trust, t = Trust.SECURE_AGGREGATION, self.colluding
        return replace(a_study(d=2, sites=tuple(self.names), neighbours=ADD), trust=trust, colluding=t)

    def answers(self, person: str, *, there: bool) -> dict[str, IntArray]:
        """Exact ones; that `person` is at one site is known, and all else."""
        empty = np.zeros(self.query.length, dtype=np.int64)
        here = Site(self.data[there]).answer(self.query)
        return {name: here if name == person else empty for name in self.names}

    def sent(self, exact: Sent, members: str, number: int, noise: NoiseSource, m: int) -> dict[str, IntArray]:
        """Answer of each member in an attempt, m times over. Shape: (m, length) each."""
        round_query = at_cost(self.query)
        attempt = attempt_of(round_query, number, members)
        spec = share_spec(round_query.priced, self.study, len(members))
        out = {}
        for name in members:
            honest = name in self.names[: self.sites - self.colluding]
            share = np.zeros((m, self.query.length), dtype=np.int64)
            if honest:
                share = Stacked(noise, m).draw(spec)
            secrets = {other: secret(name, other) for other in members if other != name}
            values = np.tile(exact[name], m)
            out[name] = masked(values, share.flatten(), name, secrets, attempt).reshape(m, -1)
        return out

    def total(self, exact: Sent, members: str, number: int, noise: NoiseSource, m: int) -> IntArray:
        """Sum at the coordinator; colluders add their masks alone. Shape: (m, length)."""
        sent = self.sent(exact, members, number, noise, m).values()
        return sum((one.view(np.uint64) for one in sent), np.zeros(1, dtype=np.uint64)).view(np.int64)

    def evidence(self, found: IntArray, person: str) -> FloatArray:
        """For the record, of integers like an answer's. Shape: (m, length) -> (m,)."""
        before, after = (self.answers(person, there=there)[person] for there in (False, True))
        spec = share_spec(at_cost(self.query).priced, self.study, self.sites)
        return score(found - before, after - before, spec)


View = Callable[[Sent, NoiseSource, int], IntArray]


def of(
    name: str, stored: MaskedAttempts, view: View, *, person: str = "a", mu: float = LEVEL, tight: float
) -> Mechanism:
    """An attack by the likelihood ratio of what `view` makes of what was sent."""

    def attack(noise: NoiseSource, m: int) -> tuple[FloatArray, FloatArray]:
        """Shape: (m,) each."""
        found = []
        for there in (False, True):
            found.append(stored.evidence(view(stored.answers(person, there=there), noise, m), person))
        return found[0], found[1]

    return Mechanism(name=f"masked, {name}", kind="masked", claim=Gaussian(mu=mu), attack=attack, tight=tight)


def whole(name: str, stored: MaskedAttempts) -> Mechanism:
    """The sum of one attempt, without what colluders know."""
    members = stored.names
    return of(name, stored, lambda exact, *by: stored.total(exact, members, 1, *by), tight=0.95)


def alone(name: str, stored: MaskedAttempts, person: str) -> Mechanism:
    """The answer of one honest site, which nobody can unmask."""
    members = stored.names
    return of(
        name, stored, lambda exact, *by: stored.sent(exact, members, 1, *by)[person], person=person, tight=0
    )


def twice(name: str, stored: MaskedAttempts) -> Mechanism:
    """Two attempts: a person at a site that is in both, and in either sum."""
    first, second = stored.names, stored.names.replace("c", "")

    def view(exact: Sent, noise: NoiseSource, m: int) -> IntArray:
        return (stored.total(exact, first, 1, noise, m) + stored.total(exact, second, 2, noise, m)) // 2

    return of(name, stored, view, mu=LATER * LEVEL, tight=0.95)


def left(name: str, stored: MaskedAttempts) -> Mechanism:
    """Two attempts, the second without site c, where the person is: what the two sums differ in."""
    first, second = stored.names, stored.names.replace("c", "")

    def view(exact: Sent, noise: NoiseSource, m: int) -> IntArray:
        return stored.total(exact, first, 1, noise, m) - stored.total(exact, second, 2, noise, m)

    return of(name, stored, view, person="c", mu=LATER * LEVEL, tight=0.45)


MASKED: list[Mechanism] = [
    whole("one of four colludes", MaskedAttempts()),
    whole("three of four collude", MaskedAttempts(colluding=3)),
    whole("one of two colludes", MaskedAttempts(sites=2)),
    whole("a matrix, two of five", MaskedAttempts(sites=5, colluding=2, query=GRAM, data=OF_GRAM)),
    twice("two attempts", MaskedAttempts()),
    left("who left", MaskedAttempts()),
    alone("one answer", MaskedAttempts(), "c"),
]
