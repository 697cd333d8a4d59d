"""Mechanisms that need the exact matrix, and passes over disjoint parts and slots.

[P10] [P13] [P19] [P20] [P21] [P9] [P24]. Where a claim covers the worst of all data sets and the pair here is
only a bad one, `tight` is small: the audit then rules out gross errors, not a tenth."""

from __future__ import annotations

import math
from unittest.mock import patch

import numpy as np

from eigenveil.accounting.amplification import local_micro_rho
from eigenveil.accounting.zcdp import MICRO, Neighbours
from eigenveil.mechanisms import apply_mechanism, data_independent_noise
from eigenveil.mechanisms.papers import covariance as spectrum
from eigenveil.mechanisms.papers import single_pass
from eigenveil.mechanisms.papers.covariance import rounded_eigenvalues
from eigenveil.noise.source import NoiseSource
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.protocol.query import NoiseDistribution, RoundQuery
from eigenveil.queries import VECTOR, Batch, Eigenvectors, Gradient, ShuffledRecord, Spectrum
from eigenveil.queries.gradients import pass_key
from eigenveil.queries.papers.trusted import CAUCHY, GAUSSIAN, PROPOSE_TEST_RELEASE, Subspace
from eigenveil.site.batches import assign_batches
from eigenveil.site.site import Site
from eigenveil.study.grid import GridRows
from tests.core.queries.kinds import ADD, FINE, REPLACE, ZERO, field_of, moves, rows
from tests.statistical.audit import Approximate, Claim, Gaussian, Mechanism
from tests.statistical.counted import WITH_DELTA, watched
from tests.statistical.mechanisms import DELTA, LEVEL, OF_ITS_OWN, Stacked, at_cost, at_once, score, study_of
from tests.support import DIGEST

R = 4000
RECORDS = 1000


def matrix(*entries: float) -> IntArray:
    """The diagonal, then the rest, of a Gram matrix in persons of full weight R^2. Shape: (3,)."""
    return frozen(np.rint(np.array(entries) * R**2).astype(np.int64))


def eigenvalues(distribution: NoiseDistribution) -> Mechanism:
    """A record along the leading direction raises the first eigenvalue by all of its weight."""
    query, study = Spectrum(centre=ZERO, radius=R, records=RECORDS), study_of(ADD)
    round_query = at_cost(query, distribution)
    data = moves(np.tile(rows([R, 0], [0, 10]), (3, 1)), [R, 0])
    before, after = (Site(part).answer(query) for part in data)
    base, moved = (rounded_eigenvalues(query, total) for total in (before, after))
    spec = data_independent_noise(round_query.priced, study)
    assert spec is not None

    def attack(noise: NoiseSource, m: int) -> tuple[FloatArray, FloatArray]:
        """m releases at once: the eigenvalues of the sum are a row for each. Shape: (m,) each."""
        tiled = patch.object(
            spectrum, "rounded_eigenvalues", lambda *given: np.tile(rounded_eigenvalues(*given), (m, 1))
        )
        with tiled:
            both = [
                apply_mechanism(round_query.priced, total, study, Stacked(noise, m)).values
                for total in (before, after)
            ]
        low, high = (score(values - base, moved - base, spec) for values in both)
        return low, high

    claim: Claim = (
        Gaussian(mu=LEVEL) if distribution is NoiseDistribution.GAUSSIAN else Approximate(epsilon=LEVEL)
    )
    return Mechanism(
        name=f"spectrum, {distribution.value}", kind="spectrum", claim=claim, attack=attack, tight=0.93
    )


def direction() -> Mechanism:
    """Most directions drawn lie along the second axis; the record is along the first, where few do."""
    query = Eigenvectors(centre=ZERO, radius=R, records=RECORDS, count=1)
    before, after = matrix(0, 2, 0), matrix(1, 2, 0)
    attack = watched(at_cost(query), study_of(ADD), before, after, lambda v: (v[:, 0] / VECTOR) ** 2)
    claim = Approximate(epsilon=LEVEL)
    return Mechanism(name="eigenvectors", kind="eigenvectors", claim=claim, attack=attack, tight=0.55)


def turned(mechanism: str, gap: float, tight: float) -> Mechanism:
    """The record turns the leading direction as far as the gap lets it: half way between the axes.

    The sign of the release is random, so it is taken off."""
    query = Subspace(centre=ZERO, radius=R, records=10 * RECORDS, count=1, mechanism=mechanism)
    before, after = matrix(gap, 0, 0), matrix(gap + 0.5, 0.5, 0.5)
    delta = 0 if mechanism == CAUCHY else OF_ITS_OWN
    claim = Approximate(epsilon=LEVEL) if mechanism == CAUCHY else WITH_DELTA
    attack = watched(
        at_cost(query, atto_delta=delta),
        study_of(ADD),
        before,
        after,
        lambda v: (np.sign(v[:, 0]) * v[:, 1]).astype(np.float64),
    )
    return Mechanism(name=f"subspace, {mechanism}", kind="subspace", claim=claim, attack=attack, tight=tight)


PARTS = 3
PASS_KEY = pass_key(DIGEST, 0, PARTS)
BOUND = Gradient(spec=field_of(2), radius=4001 * 10 * FINE)


def batch_queries() -> list[RoundQuery]:
    """One pass: the same query about each part, paid with the first."""
    parts = (Batch(first_round=0, index=i, batches=PARTS, key=PASS_KEY) for i in range(PARTS))
    requests = (Gradient(spec=BOUND.spec, radius=BOUND.radius, batch=part) for part in parts)
    return [at_cost(query, round=i) for i, query in enumerate(requests)]


def passed(
    name: str, neighbours: Neighbours, sums: tuple[list[IntArray], list[IntArray]], tight: float
) -> Mechanism:
    """Release of a whole pass, part after part, against the price that was paid once."""
    queries, study = batch_queries(), study_of(neighbours)
    specs = [data_independent_noise(query.priced, study) for query in queries]

    def attack(noise: NoiseSource, m: int) -> tuple[FloatArray, FloatArray]:
        """Shape: (m,) each."""
        out = []
        for totals in sums:
            seen = np.zeros(m)
            for query, spec, total, before, after in zip(queries, specs, totals, *sums, strict=True):
                assert spec is not None
                values = at_once(query, total, study, noise, m)
                seen += score(values - before, after - before, spec)
            out.append(seen)
        return out[0], out[1]

    return Mechanism(name=name, kind="gradient", claim=Gaussian(mu=LEVEL), attack=attack, tight=tight)


def dealt(data: GridRows) -> list[IntArray]:
    """The exact sums of every part. Shape: (2,) each."""
    site = Site(data)
    return [site.answer(round_query.query) for round_query in batch_queries()]


def in_part(records: list[list[int]], part: int) -> list[int]:
    """The first of some records that the pass deals into `part`."""
    placed = assign_batches(rows(*records), PARTS, PASS_KEY)
    return records[int(np.flatnonzero(placed == part)[0])]


UP = [[10, 4000 - i] for i in range(30)]
DOWN = [[10, i - 4000] for i in range(30)]
REST = rows(*UP[20:], *DOWN[20:])


def dealt_mechanisms() -> list[Mechanism]:
    """A record more; a record replaced within its part, and one that changes parts (half of the price)."""
    up, down, away = in_part(UP, 0), in_part(DOWN, 0), in_part(DOWN, 1)
    joined = tuple(dealt(data) for data in moves(REST, up))
    same, other = (
        tuple(dealt(np.concatenate([REST, rows(record)])) for record in (up, new)) for new in (down, away)
    )
    return [
        passed("parts", ADD, (joined[0], joined[1]), 0.93),
        passed("parts, replaced within one", REPLACE, (same[0], same[1]), 0.93),
        passed("parts, replaced across two", REPLACE, (other[0], other[1]), 0.65),
    ]


SLOTS = 1000


def slot(index: int = 0) -> ShuffledRecord:
    """A slot of a pass over as many records."""
    part = Batch(first_round=0, index=index, batches=SLOTS, key=pass_key(DIGEST, 0, SLOTS))
    return ShuffledRecord(spec=BOUND.spec, radius=BOUND.radius, batch=part)


def one_slot() -> Mechanism:
    """A local randomiser: what one slot says, to somebody who knows the order."""
    query, study = slot(), study_of(REPLACE)
    round_query = at_cost(query, atto_delta=OF_ITS_OWN)
    spec = single_pass.shuffled_noise_spec(round_query.priced, query, study)
    ends = frozen([0, query.radius]), frozen([0, -query.radius])

    def attack(noise: NoiseSource, m: int) -> tuple[FloatArray, FloatArray]:
        """Shape: (m,) each."""
        both = (at_once(round_query, total, study, noise, m) for total in ends)
        low, high = (score(values - ends[0], ends[1] - ends[0], spec) for values in both)
        return low, high

    local = math.sqrt(2 * local_micro_rho(LEVEL, DELTA, SLOTS) / MICRO)
    return Mechanism(
        name="slot, order known", kind="shuffled-record", claim=Gaussian(mu=local), attack=attack, tight=0.9
    )


BEHIND: list[Mechanism] = [
    eigenvalues(NoiseDistribution.GAUSSIAN),
    eigenvalues(NoiseDistribution.LAPLACE),
    direction(),
    turned(GAUSSIAN, 1000.0, 0.0),
    turned(CAUCHY, 1000.0, 0.05),
    turned(PROPOSE_TEST_RELEASE, 1000.0, 0.4),
    *dealt_mechanisms(),
    one_slot(),
]
