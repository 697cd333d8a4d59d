"""Sites that answer in groups contribute what each of them answers, and are looked at one by one."""

from __future__ import annotations

import numpy as np
import pytest

from eigenveil import simulated_sites
from eigenveil.aggregation import aggregate
from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil.simulated_sites import sum_contributions
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from tests.support import a_plan, a_study, refused

SITES = tuple(f"site-{number}" for number in range(7))


@pytest.mark.parametrize("algorithm", [Algorithm.GAUSS_COV, Algorithm.SUBSPACE_EXACT])
def test_groups_contribute_what_their_sites_answer(
    algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulated_sites, "SITES_AT_ONCE", 3)
    study = a_study(sites=SITES, algorithm=algorithm)
    rng = np.random.default_rng(0)
    sites = {name: Site(to_grid(rng.normal(50, 20, size=(90, 3)), study)) for name in SITES}
    told = False
    for asked in rehearse(a_plan(study)):
        for present in (SITES, SITES[4:], SITES[:3]):
            each = {name: sites[name].answer(asked.query, frame=asked.frame) for name in present}
            together = sum_contributions(sites, study.max_records, asked, present[::-1])
            told |= bool(together.any())
            assert np.array_equal(together, aggregate(asked, each))
    assert told
    with refused(Code.BAD_CONTRIBUTION):
        sum_contributions(sites, 89, rehearse(a_plan(a_study(sites=SITES)))[0], SITES)
