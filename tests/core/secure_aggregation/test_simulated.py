"""Masked rounds in one process: a release is the exact sum and all shares of noise."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil import simulate, simulation
from eigenveil.accounting.zcdp import NO_COST
from eigenveil.errors import Code
from eigenveil.noise.seeded import SeededNoise
from eigenveil.noise.source import NoiseSpec, share_spec
from eigenveil.numerics.encoding import IntArray
from eigenveil.priors import prior_from_rows
from eigenveil.protocol.plan import Plan
from eigenveil.queries import Count
from eigenveil.secure_aggregation import simulated
from eigenveil.simulated_sites import sum_contributions
from eigenveil.simulation import MemoryJournal
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Federation, Study, Trust
from tests.support import a_study, refused

SITES = ("east", "north", "south", "west")
RECORDS = {
    name: np.random.default_rng(i).normal(size=(200, 3)) * [20, 10, 5] + 50 for i, name in enumerate(SITES)
}
Drawn = list[tuple[NoiseSpec, IntArray]]


def a_masked(quorum: int | None = 2, **changes: Any) -> Study:
    """Four sites, of which one may collude unless `changes` say otherwise."""
    federation = Federation(sites=SITES, quorum=quorum)
    return a_study(components=2, federation=federation, trust=Trust.SECURE_AGGREGATION, **changes)


def site(study: Study, name: str) -> Site:
    return Site(to_grid(RECORDS[name], study))


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    remaining: list[int] = []

    def source(seed: int) -> SeededNoise:
        remaining.append(seed)
        return SeededNoise(seed)

    monkeypatch.setattr(simulated, "SeededNoise", source)
    return remaining


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Drawn noise, in the order of rounds and sites."""
    remaining: Drawn = []

    class Recording(SeededNoise):
        def draw(self, spec: NoiseSpec) -> IntArray:
            values = super().draw(spec)
            remaining.append((spec, values.copy()))
            return values

    monkeypatch.setattr(simulated, "SeededNoise", Recording)
    return remaining


@pytest.fixture
def journals(monkeypatch: pytest.MonkeyPatch) -> list[MemoryJournal]:
    remaining: list[MemoryJournal] = []

    class RecordedJournal(MemoryJournal):
        def __init__(self, plan: Plan) -> None:
            super().__init__(plan)
            remaining.append(self)

    monkeypatch.setattr(simulation, "MemoryJournal", RecordedJournal)
    return remaining


@pytest.mark.parametrize(
    ("algorithm", "informed"),
    [(Algorithm.GAUSS_COV, False), (Algorithm.PRIVATE_OJA, False), (Algorithm.REFINED_COV, True)],
)
def test_a_release_is_the_exact_sum_and_all_shares_bit_by_bit(
    algorithm: Algorithm, informed: bool, drawn: Drawn
) -> None:
    study = a_masked(algorithm=algorithm)
    if informed:
        study = replace(study, prior=prior_from_rows(np.clip(RECORDS["east"], 0, 100), study))
    run = simulate(study, RECORDS, seed=4)
    assert informed is (run.result.prior is not None and run.result.prior.used)
    answers = partial(sum_contributions, {name: site(study, name) for name in SITES}, study.max_records)
    assert len(drawn) == len(SITES) * len(run.queries)
    for i, (round_query, release) in enumerate(zip(run.queries, run.releases, strict=True)):
        shares = drawn[len(SITES) * i : len(SITES) * (i + 1)]
        noise = np.sum([values for _, values in shares], axis=0)
        assert np.array_equal(release.values, answers(round_query, SITES) + noise)
        assert release.sigma == pytest.approx(2 * shares[0][0].sigma)
        assert run.attempts[i] == 1
    again = simulate(study, RECORDS, seed=4)
    assert [one.digest for one in again.releases] == [one.digest for one in run.releases]
    real = [simulate(study, RECORDS) for _ in range(2)]
    drawn_twice = zip(*(one.releases for one in real), strict=True)
    assert any(one.digest != other.digest for one, other in drawn_twice), "all alike once in 10^60 runs"
    assert real[0].document["private"] is True


def test_a_site_that_is_lost_costs_an_attempt_and_the_rest_begin_anew(drawn: Drawn) -> None:
    study, lost = a_masked(spare_attempts=3), {0: [["north"]], 2: [["east"], ["south"]]}
    run = simulate(study, RECORDS, seed=1, drop_outs={0: ["west"]}, lost=lost)
    assert run.attempts[:4] == (2, 1, 3, 1)
    present = [one.present for one in run.releases[:4]]
    assert present == [("east", "south"), SITES, ("north", "west"), SITES]
    absent = [set(entry["absent"]) for entry in run.document["rounds"][:4]]
    assert absent == [{"west", "north"}, set(), {"east", "south"}, set()]
    # Of two sites one may collude, so each draws all the noise: together twice the variance that is due.
    alone = drawn[len(SITES) + 2 :][0][0].sigma
    assert run.releases[2].sigma == pytest.approx(np.sqrt(2) * alone)
    plain = simulate(study, RECORDS, seed=1)
    more = sum(
        8 * round_query.query.length * (n - 1)
        for round_query, n in zip(run.queries, run.attempts, strict=True)
    )
    assert run.bytes_per_site == plain.bytes_per_site + more


def test_no_share_is_drawn_twice(seeds: list[int]) -> None:
    """Not even of the same query, at another attempt: also those that came to nothing were sent."""
    run = simulate(a_masked(spare_attempts=1), RECORDS, seed=1, lost={2: [["east"]]}, colluding=["north"])
    assert len(seeds) == len(set(seeds)) == len(SITES) * len(run.queries) + len(SITES) - 2


@pytest.mark.parametrize(
    ("spares", "lost", "why"),
    [
        (0, {1: [["north"]]}, "lost north in attempt 1, and no spare attempt is left"),
        (1, {6: [["north"], ["south"]]}, "lost south in attempt 2, and no spare attempt is left"),
        (1, {4: [["north"]], 6: [["south"]]}, "lost south in attempt 1, and no spare attempt is left"),
        (3, {1: [["north"], ["south", "east"]]}, "of the 2 sites needed answered; 2 attempts remain charged"),
    ],
)
def test_a_study_without_attempts_or_sites_left_fails_and_attempts_stay_charged(
    spares: int, lost: dict[int, list[list[str]]], why: str, journals: list[MemoryJournal]
) -> None:
    study = a_masked(spare_attempts=spares)
    with refused(Code.STUDY_FAILED, why):
        simulate(study, RECORDS, seed=0, lost=lost)
    (journal,) = journals
    last = max(lost)
    costs = [round_query.priced.cost for round_query in simulate(study, RECORDS, seed=0).queries]
    repeated = sum((costs[round] for round in lost for _ in lost[round][round == last :]), NO_COST)
    assert journal.ledger.spent == sum(costs[: last + 1], repeated)
    assert list(journal.releases) == [*range(last)]


@settings(max_examples=25, deadline=None)
@given(
    colluding=st.sets(st.sampled_from(SITES), min_size=1, max_size=2),
    lost=st.sets(st.sampled_from(SITES), max_size=1),
    seed=st.integers(0, 2**32),
)
def test_colluding_sites_learn_only_the_noised_sum_of_all_honest_sites(
    colluding: set[str], lost: set[str], seed: int
) -> None:
    """Fair bits of 64 are below 2^40 in size once in 2^23, and noise beyond 8 sd once in 10^15: a false alarm
    in 10^4 runs."""
    study = a_masked(quorum=3, colluding=2, spare_attempts=7)
    run = simulate(
        study,
        RECORDS,
        seed=seed,
        colluding=sorted(colluding),
        lost={round: [sorted(lost)] for round in range(7)},
    )
    assert [one.round for one in run.coalition_views] == sorted([*range(7)] * (1 + len(lost)))
    answers = partial(sum_contributions, {name: site(study, name) for name in SITES}, study.max_records)
    for seen in run.coalition_views:
        members = set(SITES) if seen.attempt == 1 else set(SITES) - lost
        honest = members - colluding - (lost if seen.attempt == 1 else set())
        assert set(seen.honest) == honest
        round_query = run.queries[seen.round]
        if honest == members - colluding:
            noise = seen.values - answers(round_query, seen.honest)
            share = share_spec(round_query.priced, study, len(members))
            assert (np.abs(noise) <= 8 * share.sigma * np.sqrt(len(honest))).all()
            # The noise of a count, alone of all, is 0 once in 100 to 150 seeds.
            assert noise.any() or isinstance(round_query.query, Count)
        else:
            assert (np.abs(seen.values.astype(float)) > 2**40).all()


def test_what_colluding_sites_see_changes_no_release() -> None:
    """Their answers and shares taken off, and nothing else: the release says no more of the others."""
    run = simulate(a_masked(), RECORDS, seed=2, colluding=["north"])
    alone = simulate(a_masked(), RECORDS, seed=2)
    assert [one.digest for one in run.releases] == [one.digest for one in alone.releases]
    assert alone.coalition_views == ()
    assert [one.honest for one in run.coalition_views] == [("east", "south", "west")] * len(run.queries)


def test_invalid_options_of_a_masked_simulation_are_refused() -> None:
    central = replace(a_masked(), trust=Trust.CENTRAL)
    with refused(Code.BAD_ARGUMENT, "need trust"):
        simulate(central, RECORDS, lost={0: [["north"]]})
    with refused(Code.BAD_ARGUMENT, "sites that are not invited: moon"):
        simulate(a_masked(), RECORDS, colluding=["moon"])
    with refused(Code.BAD_ARGUMENT, "states colluding = 1, not 2"):
        simulate(a_masked(), RECORDS, colluding=["north", "east"])
