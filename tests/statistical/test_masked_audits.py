"""[P31] [P32] [P33] What a coordinator and t colluding sites hold of masked rounds proves no more than was
paid.

False-alarm rate: 1e-6 for each audit (see `audit`)."""

from __future__ import annotations

import pytest

from tests.statistical.audit import Mechanism
from tests.statistical.masked import MASKED
from tests.statistical.test_mu_audits import proven_share

SAMPLES = 20_000  # a side, in the quick run


@pytest.mark.parametrize("mechanism", MASKED[:1] + MASKED[5:], ids=lambda m: m.name)
def test_no_coordinator_proves_more_than_was_paid_with_few_releases(mechanism: Mechanism) -> None:
    assert proven_share(mechanism, SAMPLES) >= 0.9 * mechanism.tight


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mechanism", MASKED, ids=lambda m: m.name)
def test_no_coordinator_proves_more_than_was_paid(mechanism: Mechanism) -> None:
    assert proven_share(mechanism) >= mechanism.tight
