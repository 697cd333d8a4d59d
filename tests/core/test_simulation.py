"""A simulated study follows the protocol, for any sites and number of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from eigenveil import Simulation, simulate, simulated_sites, simulation
from eigenveil.aggregation import aggregate
from eigenveil.errors import Code
from eigenveil.noise.seeded import SeededNoise
from eigenveil.planning.choose import make_plan, rehearse
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import Release
from eigenveil.session import Session
from eigenveil.simulated_sites import Attendance, sum_contributions
from eigenveil.simulation import MemoryJournal, run_study
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Federation, Trust
from tests.support import a_plan, a_study, refused

STUDY = a_study(components=2, federation=Federation(sites=("north", "south", "west"), quorum=1))
RECORDS = {
    name: np.random.default_rng(i).normal(size=(300, 3)) * [20, 10, 5] + 50
    for i, name in enumerate(STUDY.federation.sites)
}


def bits(run: Simulation) -> list[str]:
    return [release.digest for release in run.releases] + [run.estimate.components.tobytes().hex()]


def test_run_study_equals_simulate_when_every_site_answers() -> None:
    plan = make_plan(STUDY, analyst="simulation")
    session = Session(plan)
    sites = {name: Site(to_grid(rows, STUDY)) for name, rows in sorted(RECORDS.items())}
    run_study(session, sites, journal=MemoryJournal(plan), noise=SeededNoise(5))
    run = simulate(STUDY, RECORDS, seed=5)
    assert [release.digest for release in session.releases] == bits(run)[:-1]
    assert [round_query.digest for round_query in run.queries] == [release.query for release in run.releases]


@pytest.mark.parametrize("trust", list(Trust))
def test_a_simulated_release_is_charged_and_sealed_before_the_algorithm_sees_it(
    trust: Trust, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[P27] In a simulation as in a federation."""
    sealed: list[int] = []
    spent: list[set[int]] = []
    seal, feed = MemoryJournal.seal, Session.feed

    def sealing(self: MemoryJournal, round_query: RoundQuery, release: Release) -> None:
        seal(self, round_query, release)
        sealed.append(round_query.round)
        spent.append({round for _, round in self.ledger.charged} | self.tried.keys())

    def feeding(self: Session, release: Release) -> None:
        if spent:  # a rehearsal has no journal
            assert sealed[-1] == release.round
            assert spent[-1] == set(range(release.round + 1))
        feed(self, release)

    monkeypatch.setattr(MemoryJournal, "seal", sealing)
    monkeypatch.setattr(Session, "feed", feeding)
    federation = Federation(sites=("north", "south", "west"), quorum=3)
    study = a_study(components=2, federation=federation, trust=trust, max_records=10_000)
    assert sealed == [one.round for one in simulate(study, RECORDS, seed=5).releases]


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "PARALLEL_ENTRIES", 1)
    monkeypatch.setattr(simulated_sites, "PARALLEL_ENTRIES", 1)
    monkeypatch.setattr(simulation, "WORKERS", 5)
    with ThreadPoolExecutor(3) as threads:
        many = simulate(STUDY, RECORDS, seed=2, apply=threads.map)
    assert bits(many) == bits(simulate(STUDY, RECORDS, seed=2))


def test_a_document_lists_absent_sites_with_reasons() -> None:
    few = RECORDS | {"west": RECORDS["west"][:3]}
    run = simulate(STUDY, few, seed=1, drop_outs={1: ["south"]})
    first, second = run.document["rounds"][:2]
    assert first["absent"] == {"west": "declined"}
    assert second["absent"] == {"south": "dropped out", "west": "declined"}
    assert (first["present"], second["present"]) == (["north", "south"], ["north"])
    del few["north"]
    assert simulate(STUDY, few, seed=1).document["rounds"][0]["absent"]["north"] == "no records"


def test_too_few_sites_end_a_study_with_the_reason() -> None:
    need = Federation(sites=("north", "south"), minimum_cohort=20)
    sites = {name: Site(to_grid(RECORDS[name][:n], STUDY)) for name, n in (("north", 30), ("south", 7))}
    plan = make_plan(a_study(federation=need))
    with refused(Code.STUDY_FAILED, "south: fewer records than minimum_cohort = 20"):
        round_query = Session(plan).pending
        assert round_query is not None
        Attendance(need, sites, {})(round_query)


def test_uninvited_sites_are_refused() -> None:
    with refused(Code.BAD_ARGUMENT, "sites that are not invited: east"):
        simulate(STUDY, RECORDS | {"east": RECORDS["west"]})


def test_a_seeded_simulation_is_not_private_and_an_unseeded_one_is() -> None:
    assert simulate(STUDY, RECORDS, seed=1).document["private"] is False
    one, two = (simulate(a_study(algorithm=Algorithm.GAUSS_COV), RECORDS_OF_TWO) for _ in range(2))
    assert one.document["private"] is True
    assert bits(one) != bits(two)


RECORDS_OF_TWO = {name: RECORDS[name] for name in ("north", "south")}


SITES = tuple(f"site-{number}" for number in range(7))


@pytest.mark.parametrize("algorithm", [Algorithm.GAUSS_COV, Algorithm.SUBSPACE_EXACT])
def test_the_sum_of_contributions_equals_the_aggregate_of_the_answers(algorithm: Algorithm) -> None:
    study = a_study(sites=SITES, algorithm=algorithm)
    rng = np.random.default_rng(0)
    sites = {name: Site(to_grid(rng.normal(50, 20, size=(90, 3)), study)) for name in SITES}
    for round_query in rehearse(a_plan(study)):
        frame = round_query.priced.frame
        each = {name: site.answer(round_query.query, frame=frame) for name, site in sites.items()}
        combined = sum_contributions(sites, study.max_records, round_query, SITES[::-1])
        assert np.array_equal(combined, aggregate(round_query, each))
    with refused(Code.BAD_CONTRIBUTION):
        sum_contributions(sites, 89, rehearse(a_plan(a_study(sites=SITES)))[0], SITES)
