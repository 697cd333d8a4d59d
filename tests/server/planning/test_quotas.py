"""Limits of one analyst's studies, and studies that wait for the operator's word."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil.study.algorithm import Algorithm
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.process import unix_ms
from eigenveil_server.studies.consent import HOUR_MS
from tests.server.process import command
from tests.server.rig import Client, Rig, answering, made, refusal, serving, study_toml


async def state(client: Client, digest: str) -> int:
    rows = (await client.stub.ListStudies(pb.ListStudiesRequest())).studies
    return next(row.state for row in rows if row.plan_digest.hex() == digest)


def reserved(rig: Rig) -> int:
    books = rig.repository.ledger.ledger
    return books.committed().micro_rho - books.spent.micro_rho


async def decided(config: Config, verb: str, study: str) -> tuple[int, str]:
    where = ("--config", str(config.state / "coordinator.toml"), "--study", study)
    code, _, err = await asyncio.to_thread(command, verb, *where)
    return code, err


async def test_one_analyst_has_so_many_studies_under_way_and_leaves_room_for_others(tmp_path: Path) -> None:
    config = made(tmp_path / "c", max_studies_per_analyst=3, max_share_per_analyst=0.5)
    async with serving(config) as rig:
        await rig.sites()
        eve, ada = [await rig.client(Role.ANALYST, name) for name in ("eve", "ada")]
        await eve.submit(study_toml(name="s0", epsilon=5.0), "0")
        many = await refusal(eve.submit(study_toml(name="s1", epsilon=5.0), "1"))
        assert (many.code, "max_share_per_analyst" in str(many)) == (Code.BUDGET, True)
        assert 2 * reserved(rig) <= config.budget.mixed.micro_rho
        for number in (2, 3):
            await eve.submit(study_toml(name=f"s{number}"), str(number))
        more = await refusal(eve.submit(study_toml(name="s4"), "4"))
        assert (more.code, "max_studies_per_analyst" in str(more)) == (Code.CONFLICT, True)
        await ada.submit(study_toml(name="other", epsilon=5.0), "other")


async def test_a_study_above_the_threshold_waits_for_approval_reserving_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eigenveil")
    config = made(tmp_path / "c", operator_approval_above_epsilon=0.5)
    async with serving(config) as rig:
        await rig.sites()
        ada = await rig.client(Role.ANALYST, "ada")
        small = await ada.submit(study_toml(name="small", epsilon=0.4), "small")
        before = reserved(rig)
        large, other, third = [await ada.submit(study_toml(name=name), name) for name in "abc"]
        assert await state(ada, small) == pb.STUDY_STATE_RUNNING
        assert await state(ada, large) == pb.STUDY_STATE_AWAITING_APPROVAL
        assert reserved(rig) == before
        await ada.stub.CancelStudy(pb.CancelStudyRequest(plan_digest=bytes.fromhex(third)))
        assert (await ada.events(third))[-1].state == pb.STUDY_STATE_CANCELLED
    assert await decided(config, "approve", large[:8]) == (0, "")
    code, err = await decided(config, "refuse", large[:8])
    assert (code != 0, "is decided already" in err) == (True, True)
    async with serving(config) as rig:
        sites, ada = await rig.sites(), await rig.client(Role.ANALYST, "ada")
        assert await state(ada, other) == pb.STUDY_STATE_AWAITING_APPROVAL
        assert (await decided(config, "refuse", other))[0] == 0
        code, err = await decided(config, "refuse", "ffffff")
        assert (code != 0, "waiting study" in err) == (True, True)
        async with answering(sites):
            assert (await ada.events(large))[-1].state == pb.STUDY_STATE_RELEASED
        end = (await ada.events(other))[-1]
        assert (end.state, end.failure) == (pb.STUDY_STATE_CANCELLED, "refused by the operator")
    result = [one.getMessage() for one in caplog.records if large[:12] in one.getMessage()]
    events = [line.split()[0] for line in result if "analyst=ada" in line]
    assert events[:2] == ["study-awaits-approval", "study-approved"], "it was submitted once"


async def test_an_approval_that_the_budget_has_no_room_for_ends_the_study(tmp_path: Path) -> None:
    config = made(tmp_path / "c", operator_approval_above_epsilon=4.9, max_share_per_analyst=1.0)

    async with serving(config) as rig:
        await rig.sites()
        ada = await rig.client(Role.ANALYST, "ada")
        large = await ada.submit(study_toml(epsilon=5.0), "large")
        for number in range(4):
            await ada.submit(study_toml(name=f"s{number}", epsilon=4.1), str(number))
        assert (await decided(config, "approve", large[:12]))[0] == 0
        end = (await ada.events(large))[-1]
        assert end.state == pb.STUDY_STATE_FAILED
        assert "budget" in end.failure


async def test_an_approved_study_of_another_version_ends_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = made(tmp_path / "c", operator_approval_above_epsilon=0.5)

    async with serving(config) as rig:
        await rig.sites()
        ada = await rig.credentials(Role.ANALYST, "ada")
        digest = await rig.connect(ada).submit(study_toml())
    assert (await decided(config, "approve", digest[:12]))[0] == 0
    newer = replace(Algorithm.GAUSS_COV.properties, revisions=(99,))
    monkeypatch.setattr(Algorithm.GAUSS_COV, "properties", newer)
    async with serving(config) as rig:
        again = rig.connect(ada)
        end = (await again.events(digest))[-1]
        assert (end.state, "this program has 99" in end.failure) == (pb.STUDY_STATE_FAILED, True)
        monkeypatch.undo()
        assert await again.submit(study_toml(name="next", epsilon=0.4), "next") != digest


async def test_approval_hours_count_from_the_operators_approval_and_not_anew_at_a_restart(
    tmp_path: Path,
) -> None:
    """Found on reading: an operator who took six days to approve left the sites one."""
    config = made(
        tmp_path / "c", operator_approval_above_epsilon=0.5, approval_hours=2.0, long_poll_seconds=0.1
    )
    ahead = [0]

    def clock() -> int:
        return unix_ms() + ahead[0] * HOUR_MS

    def hours_left(rig: Rig) -> float:
        run = rig.daemon.engine.running(digest)
        assert run is not None
        row = pb.StudyRow()
        run.consent.add_consent_status(row)
        return (row.consent_ends_unix_ms - clock()) / HOUR_MS

    async with serving(config, clock=clock) as rig:
        anna = (await rig.sites())["anna"]
        ada = await rig.client(Role.ANALYST, "ada")
        digest = await ada.submit(study_toml())
        ahead[0] = 5
        assert (await decided(config, "approve", digest[:12]))[0] == 0
        while rig.daemon.engine.running(digest) is None:
            await asyncio.sleep(0.05)
        plan = [bytes.fromhex(digest)]
        await anna.stub.NextWork(pb.NextWorkRequest(known_plans=plan, awaiting_approval=plan))
        assert hours_left(rig) == pytest.approx(2, abs=0.1)
    ahead[0] = 6
    async with serving(config, clock=clock) as rig:
        assert hours_left(rig) == pytest.approx(1, abs=0.1)


async def test_a_day_has_so_many_submissions_of_one_analyst_and_repeats_cost_nothing(tmp_path: Path) -> None:
    config = made(tmp_path / "c", max_submissions_per_day=2)
    small = [study_toml(name=f"s{number}", epsilon=0.5) for number in range(4)]
    async with serving(config) as rig:
        await rig.sites()
        eve = await rig.client(Role.ANALYST, "eve")
        assert await eve.submit(small[0], "0") == await eve.submit(small[0], "0")
        await eve.submit(small[1], "1")
    async with serving(config) as rig:
        eve, ada = [await rig.client(Role.ANALYST, name) for name in ("eve", "ada")]
        more = await refusal(eve.submit(small[2], "2"))
        assert (more.code, "max_submissions_per_day" in str(more)) == (Code.QUOTA, True)
        assert "(UTC)" in str(more), "when it may come again"
        assert await eve.submit(small[1], "1"), "a repetition is no submission"
        await ada.submit(small[3], "other")


@pytest.mark.parametrize(
    "settings", [{}, {"operator_approval_above_epsilon": 0.0}], ids=["reserves", "reserves nothing"]
)
async def test_of_submissions_at_once_one_is_the_last_of_the_day(
    tmp_path: Path, settings: dict[str, float]
) -> None:
    async with serving(made(tmp_path / "c", max_submissions_per_day=1, **settings)) as rig:
        await rig.sites()
        eve = await rig.client(Role.ANALYST, "eve")
        studies = [study_toml(name=f"s{n}", epsilon=0.5) for n in range(6)]
        query = [eve.submit(one, str(n), agreed=False) for n, one in enumerate(studies)]
        found = await asyncio.gather(*query, return_exceptions=True)
        assert sum(isinstance(one, str) for one in found) == 1
        reader = rig.repository.store.reader
        assert len(reader.rows("SELECT name FROM studies")) == 1, "what is refused is not stored"
