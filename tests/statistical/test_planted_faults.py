"""Faults known elsewhere are caught by the same audit that finds nothing wrong with the product.

Each fault is a small variant of a mechanism, written here, with the claim of the mechanism that it imitates.
Where it needs data sets of its own, the product's mechanism is audited on them too and raises no alarm
(false-alarm rate: 1e-6 each). Chance to miss a fault: below 1e-8 each, as they are gross."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from eigenveil.accounting.zcdp import scale_of
from eigenveil.noise.source import NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.protocol.query import NoiseDistribution
from eigenveil.queries import SpanGap
from eigenveil.queries.papers.fingerprints import Pool
from eigenveil.site.site import Site
from eigenveil.site.subspaces import candidate_spans
from eigenveil.study.grid import GridRows
from tests.core.queries.kinds import ADD, moves, rows
from tests.statistical.audit import Mechanism, audit
from tests.statistical.behind import BOUND, DOWN, PARTS, UP, passed
from tests.statistical.counted import KEY, WITH_DELTA, is_released, watched
from tests.statistical.mechanisms import COST, OF_ITS_OWN, at_cost, study_of
from tests.statistical.noises import Bulk

FEW = 20_000  # releases a side
Dealer = Callable[[GridRows], list[IntArray]]


def alarms(mechanism: Mechanism, samples: int = FEW) -> bool:
    return audit(mechanism, Bulk(), samples).alarm


# ---- Parts by position


def by_turns(data: GridRows) -> list[IntArray]:
    """Every third record: fine where records are replaced, not where one is put in front."""
    return [Site(data[i::PARTS]).answer(BOUND) for i in range(PARTS)]


def by_batches(data: GridRows) -> list[IntArray]:
    return [Site(data[20 * i : 20 * (i + 1)]).answer(BOUND) for i in range(PARTS)]


@pytest.mark.parametrize(
    ("part", "order"),
    [(by_turns, [UP[0], DOWN[0], [0, 0]] * 20), (by_batches, UP[:20] + DOWN[:20] + UP[:20])],
)
def test_positional_batches_under_add_remove(part: Dealer, order: list[list[int]]) -> None:
    """[P9] One record in front moves every other one to another place."""
    data = rows(*order)
    sums = part(data), part(np.concatenate([rows(UP[0]), data]))
    assert alarms(passed("by position", ADD, sums, 0.0), FEW // 5)


# ---- Algorithm 1 of [SUB]

POOL = Pool(centre=frozen([0, 0]), rank=1, max_records=100, truncated=False, key=KEY)
NO_LEAD = moves(rows([1, 0], [0, 1]), [1, 1])  # three directions, one record each


def printed(noise: NoiseSource, m: int) -> tuple[FloatArray, FloatArray]:
    """[P16] Line 11 as printed: noise on every span that holds records, and the largest wins.

    Shape: (m,) each, whether the span of the record in question is released."""
    found = []
    for data in NO_LEAD:
        spans = candidate_spans(data, POOL)
        scores = np.array([span.score for span in spans])
        best = np.sort(scores)[::-1]
        leads = np.where(scores == best[0], max(0, best[0] - best[1] - 1), 0)
        spec = NoiseSpec.of(m * len(spans), scale_of(1, COST), NoiseDistribution.LAPLACE)
        winner = (leads + noise.draw(spec).reshape(m, -1)).argmax(axis=1)
        its = [i for i, span in enumerate(spans) if span.echelon_form.tolist() == [[1, 1]]]
        found.append(np.isin(winner, its).astype(np.float64))
    return found[0], found[1]


def test_printed_algorithm_1_of_subspaces() -> None:
    """It names a random record's span where none leads; the repaired one is silent."""
    assert alarms(
        Mechanism(name="printed", kind="span-gap", claim=WITH_DELTA, attack=printed, tight=0.0), FEW // 8
    )
    query = SpanGap(pool=POOL)
    before, after = (Site(data).answer(query) for data in NO_LEAD)
    repaired = watched(at_cost(query, atto_delta=OF_ITS_OWN), study_of(ADD), before, after, is_released)
    assert not alarms(
        Mechanism(name="repaired", kind="span-gap", claim=WITH_DELTA, attack=repaired, tight=0.0)
    )
