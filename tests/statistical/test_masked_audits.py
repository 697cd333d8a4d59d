"""[P31] [P32] [P33] What a coordinator and t colluding sites hold of masked rounds proves no more than was
paid.

False-alarm rate: 1e-6 for each audit (see `audit`). Planted faults lie more than 8 standard deviations of the
bound above the claim: missed less than once in 10^8 runs. Masks of 32 bits: stated where they are sought.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from eigenveil.noise.source import NoiseSpec, noise_spec
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import AdditiveQuery
from eigenveil.secure_aggregation import masking
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil.study.study import Study
from tests.statistical.audit import Mechanism, audit
from tests.statistical.masked import MASKED, Held, alone, left, whole
from tests.statistical.noises import Bulk
from tests.statistical.test_mu_audits import Record, reported
from tests.support import DIGEST

SAMPLES = 20_000  # a side, where a fault is planted
PAIRS = 400_000  # masks among which two alike are looked for


@pytest.mark.parametrize("mechanism", MASKED[:1] + MASKED[5:], ids=lambda m: m.name)
def test_no_coordinator_proves_more_than_was_paid_with_few_releases(
    mechanism: Mechanism, record_property: Record
) -> None:
    assert reported(mechanism, record_property, SAMPLES) >= 0.9 * mechanism.tight


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mechanism", MASKED, ids=lambda m: m.name)
def test_no_coordinator_proves_more_than_was_paid(mechanism: Mechanism, record_property: Record) -> None:
    assert reported(mechanism, record_property) >= mechanism.tight


def forgetful(asked: RoundQuery, study: Study, sites: int) -> NoiseSpec:
    """Planted: sigma^2 / |S|, as if nobody colluded."""
    assert isinstance(asked.query, AdditiveQuery)
    return noise_spec(asked.query, asked.micro_rho, study.neighbours, shares=sites)


def all_but_the_last(values: IntArray, share: IntArray, name: str, *known: object) -> IntArray:
    """Planted: site c, the last honest one, sends what it has."""
    return values + share if name == "c" else masking.masked(values, share, name, *known)  # type: ignore[arg-type]


FAULTS = {
    "shares that forget colluders": whole("too quiet", Held(share=forgetful)),
    "shares kept for the next attempt": left("kept", Held(kept=True)),
    "a site without masks": alone("bare", Held(mask=all_but_the_last), "c"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught(name: str) -> None:
    assert audit(FAULTS[name], Bulk(), SAMPLES).alarm


def alike(key: Callable[[bytes, Attempt, str, str], bytes]) -> bool:
    """Whether two of PAIRS masks begin with the same word. Fair ones do in one run of 10^8; of masks from
    seeds of 32 bits two are the same but once in 10^8 runs (PAIRS^2 / 2^33 = 18.6 pairs are expected)."""
    attempt = Attempt(plan=DIGEST, round=0, query=DIGEST, number=1, members={"a": DIGEST, "b": DIGEST})
    first = np.zeros((PAIRS, 1), dtype=np.uint64)
    for i in range(PAIRS):
        masking.add_mask(first[i], key(i.to_bytes(32), attempt, "a", "b"), negative=False)
    return len(np.unique(first)) < PAIRS
