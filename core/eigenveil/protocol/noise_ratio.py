"""How loud noise may be, decided when a query is planned: beyond that, 64-bit integers could not hold it.

Sums stay below 2^62 and the sampler ends at 2^63. At a scale of 2^56 Laplace noise passes 2^62 with
probability e^-64 and reaches 2^63 with e^-128, Gaussian noise far less [P2]. Masked sums are modulo 2^64, and
the noise in them is all shares together: its scale ends at 2^56 as well, so that a sum leaves 63 bits with
a probability below 2^-1000 [P32].
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import assert_never

from eigenveil.accounting.zcdp import scale_squared
from eigenveil.protocol.query import NoiseLaw, RoundQuery
from eigenveil.queries import NAMES, Additive, OwnNoise, Spectrum
from eigenveil.queries.limits import need
from eigenveil.study.study import Study

LOUDEST = 2.0**56  # the scale of one draw
# The scale below which no share is drawn: a sum of rounded Gaussians is then the rounding of one Gaussian but
# for far less than an atto-delta [P32].
QUIETEST = 4.0


def check_noise_ratio(asked: RoundQuery, study: Study) -> None:
    """Refuse a query whose noise, sensitivity over price, could leave 64-bit integers.

    Raises:
        RequestError: code `plan-overflow`.
    """
    need(
        fits(asked, study, asked.micro_rho),
        f"the noise of the {NAMES[type(asked.query)]} question would be louder than integers hold, beyond a "
        f"scale of {LOUDEST:.3g}; raise epsilon, or lower max_sites_per_person or the number of columns",
    )


def fits(asked: RoundQuery, study: Study, micro_rho: int) -> bool:
    """Whether integers hold the query's noise, if it paid this price."""
    query, sites = asked.query, study.max_sites_per_person
    if isinstance(query, OwnNoise):
        return True  # it counts votes and records, or says nothing beyond a width of its own
    if isinstance(query, Spectrum):
        moved = most_moved(query, sites) ** 2
    elif isinstance(query, Additive):
        gaussian = asked.law is NoiseLaw.GAUSSIAN
        one = query.l2_squared(study.neighbours) if gaussian else query.l1(study.neighbours) ** 2
        moved = one * sites**2
    else:
        assert_never(query)
    return scale_squared(moved, micro_rho) * excess(study, study.federation.least) <= Fraction(LOUDEST) ** 2


def excess(study: Study, sites: int) -> Fraction:
    """The variance of the noise that is drawn, in parts of what a price asks for: more than 1 where so many
    `sites` draw shares of it, and only the honest ones' count [P32]."""
    return Fraction(sites, sites - study.colluders) if study.masked else Fraction(1)


def quietest(study: Study, sites: int) -> float:
    """The least standard deviation of the noise that so many `sites` draw together; 0 where none has to."""
    return QUIETEST * math.sqrt(sites) if study.masked else 0.0


def most_moved(query: Spectrum, sites: int) -> int:
    """At least what one person moves the eigenvalues by, in L1 or L2 under either relation, with rounding."""
    d, square = query.released, query.radius**2
    blur = 2 * d * query.records * square // 2**48 + 3
    return 2 * sites * square + d * blur + 2
