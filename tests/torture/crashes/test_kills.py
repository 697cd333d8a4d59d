"""The failpoints are what they are said to be, and the check of kills sees what it is there to see."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil.identity import Role
from eigenveil.numerics.encoding import frozen
from eigenveil_common.files import arm, disarm, failpoint
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.repo.tree import files
from tests.server.deadlines import pass_without
from tests.server.rig import Client, answering, made, refusal, serving, study_toml
from tests.torture.crashes.armed import Kill
from tests.torture.crashes.forked import COORDINATOR, OPERATOR, SITES, Federation
from tests.torture.crashes.kills import (
    AT_COORDINATOR,
    AT_ENROLMENT,
    AT_OPERATOR,
    AT_SITE,
    CORE,
    EACH,
    MIDDLE,
    NEWCOMER,
    RARE,
    RESUMED,
    Toll,
    disturbed,
    federation,
    next_kill,
    plan,
    undisturbed,
    verdict,
)
from tests.torture.model import Charge, SealedRelease, Snapshot, Witness

KILLED = AT_COORDINATOR.keys() | AT_SITE.keys() | AT_ENROLMENT.keys() | AT_OPERATOR.keys()
IN_PROCESS = {"study-cancelling", "answer-late"}  # below
BY_FAILURE = {"failure-charged"}  # tests/server/recovery/test_lost_draws.py
BY_ROLLOVER = {"authorities-listed"}  # tests/integration/test_rollover.py
BY_RULE = {"plan-declining"}  # tests/client/site/state/test_declined_plans.py
PLACES = ("core", "common", "server", "client")
STUDY, OTHER = "a" * 64, "b" * 64


def called(name: str) -> Iterator[tuple[Path, str]]:
    """Where production code calls a function of this name, and with which text."""
    for path in files("*.py", *PLACES):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if name in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                first = node.args[0] if node.args else None
                yield path, str(first.value) if isinstance(first, ast.Constant) else ""


def test_every_failpoint_has_one_name_and_is_killed_at_or_passed_in_a_scenario() -> None:
    names = [name for _, name in called("failpoint")]
    assert len(names) == len(set(names)) >= 25
    assert set(names) == KILLED | IN_PROCESS | BY_FAILURE | BY_ROLLOVER | BY_RULE
    assert set(CORE) < KILLED


def test_nothing_in_production_arms_a_failpoint() -> None:
    named = [path for path in files("*.py", *PLACES) if "import arm" in path.read_text()]
    assert [*called("arm"), *called("disarm"), *named] == []


def test_an_unarmed_failpoint_does_nothing_and_an_armed_one_does_it_every_time() -> None:
    passed: list[int] = []
    failpoint("round-closed")
    arm("round-closed", lambda: passed.append(1))
    failpoint("round-closed")
    failpoint("round-sealed")
    failpoint("round-closed")
    disarm()
    failpoint("round-closed")
    assert passed == [1, 1]


def test_the_plan_has_more_than_200_kills() -> None:
    kills = [kill for due in plan(EACH, RARE, 1) for one in due.values() for kill in one]
    assert len(kills) >= 200
    often = {kill.name for kill in kills if sum(one.name == kill.name for one in kills) >= EACH}
    assert len(often) >= 25


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_everybody_passes_every_failpoint_and_a_resumption_after_a_kill(tmp_path: Path) -> None:
    toll = Toll(due={COORDINATOR: [Kill(name=RESUMED)], SITES[0]: [], NEWCOMER: [], OPERATOR: []})

    here = Federation(tmp_path, noted=tuple(KILLED))
    try:
        await here.set_up()
        await here.make_site(NEWCOMER, len(SITES))
        enrol = ("enrol", "--config", here.config(NEWCOMER), "--join", await here.join(NEWCOMER))
        assert await here.done(NEWCOMER, *enrol) == 0
        await undisturbed(here, toll)
        copy, made = str(tmp_path / "copy"), str(tmp_path / "made")
        backup = ("backup", "--config", here.config(COORDINATOR), "--out", copy)
        assert await here.done(OPERATOR, *backup) == 0
        assert await here.done(OPERATOR, "restore", "--from", copy, "--dir", made) == 0
        await disturbed(here, toll)
    finally:
        here.stop()
    assert set(here.notes.read_text().split()) == KILLED
    assert toll.faults == []
    assert toll.done == {MIDDLE.name: 1, RESUMED: 1}


async def test_cancelling_and_late_answers_pass_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pass_without(monkeypatch, lambda site, place: site != "anna" and place[0] == 0)
    config, passed = made(tmp_path / "c"), set()
    for name in IN_PROCESS:
        arm(name, lambda name=name: passed.add(name))  # type: ignore[misc]

    try:
        async with serving(config) as rig:
            stored = await rig.credentials(Role.ANALYST, "ada")
            sites = await rig.sites()
            digest = await rig.connect(stored).submit(study_toml(quorum=1))
            queries = {name: await site.query() for name, site in sites.items()}
            await sites["anna"].contribute(queries["anna"], frozen([60]))
            assert (await sites["anna"].query()).round == 1
            await refusal(sites["bert"].contribute(queries["bert"], frozen([60])))
            other = await rig.connect(stored).submit(study_toml(name="other"), "other")
        async with serving(config) as rig:
            ada: Client = rig.connect(stored)
            async with answering({}):
                for one in (other, digest):
                    cancel = pb.CancelStudyRequest(plan_digest=bytes.fromhex(one))
                    await ada.stub.CancelStudy(cancel)
    finally:
        disarm()
    assert passed == IN_PROCESS


@pytest.mark.parametrize(
    ("due", "under_way", "next_one", "left"),
    [
        ([], True, None, []),
        ([RESUMED, "round-sealed"], False, "round-sealed", [RESUMED]),
        ([RESUMED], True, RESUMED, []),
        ([RESUMED], False, MIDDLE.name, [RESUMED]),
    ],
)
def test_a_kill_at_a_resumption_waits_until_a_study_is_under_way(
    due: list[str], under_way: bool, next_one: str | None, left: list[str]
) -> None:
    kills = [Kill(name=name) for name in due]
    kill = next_kill(kills, under_way=under_way)
    assert (kill and kill.name, [one.name for one in kills]) == (next_one, left)


@pytest.mark.timeout(300)
@pytest.mark.slow
async def test_a_coordinator_that_publishes_before_it_charges_is_caught(tmp_path: Path) -> None:
    kills = [Kill(name="round-sealed", passage=passage) for passage in (1, 2, 3)]
    due = {COORDINATOR: kills, SITES[0]: [], NEWCOMER: [], OPERATOR: []}
    toll = await federation(tmp_path, due, planted=True)
    assert any(fault.startswith("under-charge: the coordinator") for fault in toll.faults), toll.faults
    assert not verdict([toll]).passed


def books(
    sealed: Mapping[int, SealedRelease], charged: Mapping[int, Charge], paid: Mapping[int, Charge]
) -> Snapshot:
    """One study of one site."""
    site = {"anna": {(STUDY, round): charge for round, charge in paid.items()}}
    return Snapshot(
        charged={(STUDY, round): charge for round, charge in charged.items()},
        sealed={(STUDY, round): one for round, one in sealed.items()},
        states={STUDY: "running"},
        bundles={},
        asked=site,
        paid=site,
        doubled=(),
    )


ROUNDS = {n: SealedRelease(query=f"q{n}", micro_rho=7, present=("anna",), digest=f"d{n}") for n in (0, 1)}
PAID = {n: Charge(query=f"q{n}", micro_rho=7) for n in (0, 1)}
GOOD = books(ROUNDS, PAID, PAID)


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        (books(ROUNDS, {0: PAID[0]}, PAID), "under-charge: the coordinator"),
        (books(ROUNDS, PAID | {1: Charge(query="q1", micro_rho=6)}, PAID), "under-charge: the coordinator"),
        (books(ROUNDS, PAID, {0: PAID[0]}), "under-charge: anna is in"),
        (books(ROUNDS, PAID, PAID | {1: Charge(query="q1", micro_rho=1)}), "under-charge: anna paid less"),
        (books({0: ROUNDS[0]}, PAID, PAID), "is gone"),
        (books(ROUNDS | {1: replace(ROUNDS[1], digest="x")}, PAID, PAID), "with different bytes"),
        (books(ROUNDS, PAID, PAID | {1: Charge(query="x", micro_rho=7)}), "another query"),
        (books(ROUNDS, PAID, PAID | {4: Charge(query="q4", micro_rho=7)}), "before round 3 was sealed"),
        (books(ROUNDS, PAID | {n: Charge(query="q", micro_rho=7) for n in (2, 3)}, PAID), "over-charge"),
        (replace(GOOD, doubled=("anna charged twice",)), "anna charged twice"),
    ],
)
def test_the_witness_sees(planted: Snapshot, fault: str) -> None:
    witness = Witness()
    witness.look(GOOD)
    assert witness.faults == []
    witness.look(planted)
    assert any(fault in result for result in witness.faults), witness.faults


def test_the_witness_sees_what_was_published_too_early() -> None:
    witness = Witness()
    witness.published(STUDY, 1, GOOD)
    assert witness.faults == []
    witness.published(STUDY, 2, GOOD)
    witness.published(STUDY, 1, books(ROUNDS, {0: PAID[0]}, PAID))
    assert [result.rsplit(" ", 2)[-1] for result in witness.faults] == ["sealed", "charged"]
