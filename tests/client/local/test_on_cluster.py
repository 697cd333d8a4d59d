"""Imagined sites on a cluster are the same study: its release is that of one process, bit by bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eigenveil import simulate
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Federation, Trust
from eigenveil_client.local.simulate import on_cluster
from tests.client.site.engine.clusters import certified, of_threads
from tests.support import a_study

MANY = 70  # sites: more than are asked together


@pytest.mark.parametrize(
    ("algorithm", "trust"),
    [
        (Algorithm.GAUSS_COV, Trust.CENTRAL),
        (Algorithm.GAUSS_COV, Trust.SECURE_AGGREGATION),
        pytest.param(Algorithm.SUBSPACE_EXACT, Trust.CENTRAL, marks=pytest.mark.slow),
        pytest.param(Algorithm.PRIVATE_OJA, Trust.CENTRAL, marks=pytest.mark.slow),
    ],
)
def test_a_cluster_releases_what_one_process_does(algorithm: Algorithm, trust: Trust, tmp_path: Path) -> None:
    sites = tuple(f"site-{number}" for number in range(MANY))
    federation = Federation(sites=sites, quorum=2)
    study = a_study(sites=sites, algorithm=algorithm, federation=federation, trust=trust)
    records = {
        name: np.random.default_rng(number).normal(size=(30 + number, 3)) * [20, 10, 5] + 50
        for number, name in enumerate(sites)
    }
    gone = {1: sites[3:40]}
    here = simulate(study, records, seed=3, drop_outs=gone)
    with of_threads(certified(tmp_path / "tls")) as address, on_cluster(address) as hold:
        there = simulate(study, records, seed=3, drop_outs=gone, sum_factory=hold)
    assert [one.digest for one in there.releases] == [one.digest for one in here.releases]
    assert len(here.releases[1].present) == MANY - 37
