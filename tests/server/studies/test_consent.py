"""Before anything is asked every site has its say, and nobody starts a study early or holds it up [R24]."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.study.study import Federation
from eigenveil_common.files import arm, disarm
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.database import open_store
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.states import ConsentState, SiteConsent, StudyState
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.studies.consent import ConsentPhase
from eigenveil_server.studies.runtime import ChangeEvent, Poll, parse_poll
from tests.server.rig import SITES, SUMMARY, UNLIMITED
from tests.support import refused
from tests.torture.programs.virtual import VirtualLoop, play

STUDY = "ab" * 32
MINUTE, HOUR = 60.0, 3600.0
REFUSED = SiteConsent(state=ConsentState.DECLINED, reason="purpose")


def poll_of(
    agreed: bool | None = None, *, waits: bool = False, known: bool = True, loading: bool = False
) -> Poll:
    """A site asks for work: it agrees (by a person's word or not), waits for a person, or says neither. If it
    agrees it may still load its records."""
    return Poll(
        known={STUDY: 0} if known else {},
        answered=frozenset(),
        awaiting_approval=frozenset({STUDY} if waits else ()),
        agreed={} if agreed is None else {STUDY: agreed},
        loading=frozenset({STUDY} if loading else ()),
    )


RULES, PERSON = poll_of(False), poll_of(True)
WAITS = poll_of(waits=True)
LOADS = poll_of(False, loading=True)


@dataclass
class Life:
    """One life of a coordinator with one study, at which a person decides at `carl` alone."""

    loop: VirtualLoop
    phase: ConsentPhase
    repository: Repository

    async def receive(self, site: str, poll: Poll) -> None:
        receive = self.phase.newly_stated(site, poll)
        if receive is not None:
            await self.phase.note(site, receive)

    async def started(self) -> float:
        """The second at which the first question may be asked."""
        await self.phase.complete(lambda: None)
        return self.loop.time()

    def events(self) -> list[pb.StudyEvent]:
        return self.repository.studies.events(STUDY, 0)


def raised(problem: InternalError) -> NoReturn:
    raise problem


def a_life(loop: VirtualLoop, folder: Path, *, hours: float = 2, **federation: Any) -> Life:
    folder.mkdir(exist_ok=True)
    store = open_store(folder / "state.db")
    config = Config(federation="f", state=folder, approval_hours=hours, start_minutes=10)
    repository = Repository.of(config, store, lambda: int(1000 * loop.time()), raised)
    stated = '{"anna": {"approval": "auto"}, "bert": null, "carl": {"approval": "manual"}}'
    stored = StoredStudy(
        digest=STUDY, name="s", analyst="ada", submission="one", plan_json=b"{}", signature=b"", micro_rho=1,
        expected_rounds=2, state=StudyState.RUNNING, failure="", submitted_at=0,
        site_rules_json=stated,
    )  # fmt: skip
    if repository.studies.state(STUDY) is None:
        with store.writer.transaction() as change:
            study_writes.add_study(change, stored, "submitted", UNLIMITED, SUMMARY)
    invited = replace(Federation(sites=SITES, deadline_seconds=MINUTE), **federation)
    return Life(loop, ConsentPhase(stored, invited, repository, ChangeEvent(), config), repository)


Script = Callable[[Life], Coroutine[Any, Any, Any]]


def lived(folder: Path, *scripts: Script, **federation: Any) -> list[Any]:
    """Result of each script, each in a life of its own: the coordinator is restarted in between."""

    async def scenario(loop: VirtualLoop) -> list[Any]:
        found = []
        for script in scripts:
            life = a_life(loop, folder, **federation)
            found.append(await script(life))
            life.repository.close()
        return found

    return play(scenario, seed=1)


async def receive(life: Life, **polls: Poll) -> None:
    for site, poll in polls.items():
        await life.receive(site, poll)


# ---------------------------------------------------------------- when it starts


def test_where_the_rules_decide_nothing_waits_longer_than_the_last_site(tmp_path: Path) -> None:
    async def script(life: Life) -> float:
        started = asyncio.create_task(life.started())
        await receive(life, anna=RULES, bert=RULES)
        await asyncio.sleep(30)
        assert not started.done(), "carl has not said a word"
        await receive(life, carl=RULES)
        return await started

    assert lived(tmp_path, script) == [pytest.approx(30, abs=0.1)]


def test_after_a_person_agreed_the_whole_window_passes_whatever_restarts(tmp_path: Path) -> None:
    async def agreed(life: Life) -> None:
        await receive(life, anna=RULES, bert=RULES, carl=WAITS)
        await asyncio.sleep(HOUR)
        await receive(life, carl=PERSON)

    async def restarted(life: Life) -> None:
        await asyncio.sleep(4 * MINUTE)
        assert life.phase.open

    window = HOUR + 10 * MINUTE
    assert window <= lived(tmp_path, agreed, restarted, Life.started)[-1] <= window + MINUTE + 5


def test_the_start_is_a_whole_minute_and_never_earlier_than_the_window(tmp_path: Path) -> None:
    """Analysts read it, and are not told at which moment a person at a site was at work."""

    async def result(life: Life) -> int:
        await asyncio.sleep(12.345)
        await receive(life, anna=RULES, bert=RULES, carl=PERSON)
        row = pb.StudyRow()
        life.phase.add_consent_status(row)
        assert await life.started() == pytest.approx(row.starts_unix_ms / 1000, abs=0.1)
        return row.starts_unix_ms

    assert lived(tmp_path, result) == [1000 * 11 * MINUTE]


def test_a_site_that_withdraws_gets_no_query_and_a_required_one_ends_the_study(tmp_path: Path) -> None:
    async def withdrawn(life: Life) -> Any:
        await receive(life, anna=RULES, bert=RULES, carl=PERSON)
        await life.phase.note("carl", REFUSED)
        assert life.phase.assignment("carl", poll_of()) is None
        return await life.started(), life.repository.studies.declined(STUDY)

    (first,) = lived(tmp_path, withdrawn, quorum=2)
    assert first == (pytest.approx(0, abs=0.1), {"carl": "purpose"})

    async def required(life: Life) -> None:
        with refused(Code.STUDY_FAILED, "carl: declined: purpose; no query was sent to any site"):
            await withdrawn(life)
        assert life.loop.time() < MINUTE

    (tmp_path / "other").mkdir()
    lived(tmp_path / "other", required, required=("carl",), quorum=1)


# ---------------------------------------------------------------- how long it waits


async def waits(life: Life) -> float:
    await receive(life, anna=RULES, bert=RULES, carl=WAITS)
    return await life.started()


async def most(life: Life) -> None:
    await receive(life, anna=RULES, bert=RULES, carl=WAITS)
    await asyncio.sleep(1.5 * HOUR)


@pytest.mark.parametrize("scripts", [(waits,), (most, waits)], ids=["one life", "restarted"])
def test_a_person_is_waited_for_until_the_operators_hours_are_over(
    tmp_path: Path, scripts: tuple[Script, ...]
) -> None:
    """Then the study begins without that site, if it can."""
    assert lived(tmp_path, *scripts, quorum=2)[-1] == pytest.approx(2 * HOUR, abs=0.1)


DAY = 24 * HOUR


async def soon_over(life: Life) -> None:
    await receive(life, anna=RULES, bert=RULES, carl=WAITS)
    await asyncio.sleep(DAY - MINUTE / 2)


@pytest.mark.parametrize("scripts", [(waits,), (most, waits), (soon_over, waits)])
def test_nobody_is_waited_for_beyond_the_last_day_of_the_study(
    tmp_path: Path, scripts: tuple[Script, ...]
) -> None:
    """A restart half a minute before, with a deadline of a minute, does not move it."""
    found = lived(tmp_path, *scripts, hours=48, quorum=2, decide_by="1970-01-01")
    assert found[-1] == pytest.approx(DAY, abs=0.1)


def test_a_site_is_told_until_when_a_person_may_decide(tmp_path: Path) -> None:
    async def script(life: Life) -> float:
        message = life.phase.assignment("carl", poll_of(known=False))
        assert message is not None
        return message.consent_ends_unix_ms / 1000

    for place, more, ends in (("hours", {}, 48 * HOUR), ("day", {"decide_by": "1970-01-01"}, DAY)):
        assert lived(tmp_path / place, script, script, hours=48, **more) == [ends, ends]


def test_a_last_day_beyond_the_operators_hours_changes_nothing(tmp_path: Path) -> None:
    for day in ("1970-01-01", "9999-12-31"):
        assert lived(tmp_path / day, waits, quorum=2, decide_by=day) == [pytest.approx(2 * HOUR, abs=0.1)]


def test_an_unresponsive_site_without_manual_consent_has_the_deadline_of_the_study(tmp_path: Path) -> None:
    async def script(life: Life) -> float:
        await receive(life, anna=RULES, carl=RULES)
        with refused(Code.STUDY_FAILED, "bert: no answer yet; no query was sent"):
            await life.started()
        return life.loop.time()

    assert lived(tmp_path, script) == [pytest.approx(MINUTE, abs=0.1)]


def test_a_study_that_is_cancelled_waits_for_no_site(tmp_path: Path) -> None:
    async def script(life: Life) -> float:
        stop: list[bool] = []

        def check() -> None:
            if stop:
                raise RequestError(Code.CANCELLED, "cancelled")

        waiting = asyncio.create_task(life.phase.complete(check))
        await asyncio.sleep(10)
        stop.append(True)
        life.phase.wake()
        with refused(Code.CANCELLED, "cancelled"):
            await waiting
        return life.loop.time()

    assert lived(tmp_path, script) == [pytest.approx(10, abs=0.1)]


def test_a_site_that_only_stated_that_a_person_decides_is_waited_for_while_it_calls(tmp_path: Path) -> None:
    """Its machine may be gone; an hour after the last call it is like any that never comes."""

    async def without_carl(life: Life) -> float:
        await receive(life, anna=RULES, bert=RULES)
        return await life.started()

    async def calling(life: Life) -> float:
        started = asyncio.create_task(without_carl(life))
        await asyncio.sleep(HOUR / 2)
        await receive(life, carl=poll_of(known=False))
        return await started

    assert lived(tmp_path, without_carl, quorum=2) == [pytest.approx(HOUR, abs=0.1)]
    (tmp_path / "calls").mkdir()
    assert lived(tmp_path / "calls", calling, quorum=2) == [pytest.approx(1.5 * HOUR, abs=0.1)]


def test_after_a_restart_an_unresponsive_site_has_an_hour(tmp_path: Path) -> None:
    async def agreed(life: Life) -> None:
        await receive(life, anna=RULES, bert=RULES)
        await asyncio.sleep(HOUR / 2)

    assert lived(tmp_path, agreed, Life.started, quorum=2)[-1] == pytest.approx(1.5 * HOUR, abs=0.1)


@pytest.mark.parametrize(("consent_of_site", "quorum"), [(None, 2), (WAITS, 2), (WAITS, 3), (PERSON, 3)])
def test_a_site_that_is_denied_holds_nothing_up_and_is_not_counted(
    tmp_path: Path, consent_of_site: Poll | None, quorum: int
) -> None:
    async def script(life: Life) -> float:
        await receive(
            life, anna=RULES, bert=RULES, **({} if consent_of_site is None else {"carl": consent_of_site})
        )
        started = asyncio.create_task(life.started())
        await asyncio.sleep(2 * MINUTE)
        assert not started.done()
        with life.repository.store.writer.transaction() as change:
            change.execute("INSERT INTO denied VALUES ('site', 'carl', 0)")
        life.phase.wake()
        if quorum == 2:
            return await started
        with refused(Code.STUDY_FAILED, "carl: denied by the coordinator's operator; no query was sent"):
            await started
        return life.loop.time()

    assert lived(tmp_path, script, quorum=quorum) == [pytest.approx(2 * MINUTE, abs=0.1)]


# ---------------------------------------------------------------- attacks


def test_to_and_fro_neither_starts_a_study_early_nor_holds_it_up_nor_fills_the_disk(tmp_path: Path) -> None:
    async def script(life: Life) -> float:
        started = asyncio.create_task(life.started())
        await receive(life, anna=RULES, bert=RULES)
        for number in range(1000):
            await receive(life, carl=(PERSON, WAITS, poll_of(), RULES)[number % 4])
            await asyncio.sleep(1)
        assert len(life.events()) <= 2 + 2 * len(SITES)
        return await started

    (started,) = lived(tmp_path, script)
    assert 10 * MINUTE <= started <= 11 * MINUTE + 5


def test_only_an_invited_site_that_holds_the_plan_has_a_word(tmp_path: Path) -> None:
    async def script(life: Life) -> None:
        for site, poll in (("dora", RULES), ("dora", WAITS), ("carl", poll_of(known=False, waits=True))):
            assert life.phase.newly_stated(site, poll) is None
        assert life.phase.assignment("dora", poll_of(known=False)) is None
        assignment = life.phase.assignment("carl", poll_of(known=False))
        assert assignment is not None
        assert assignment.consent.hex() == STUDY

    lived(tmp_path, script)


@pytest.mark.parametrize(
    "request_",
    [
        pb.NextWorkRequest(agreed=[pb.Agreed(plan_digest=bytes(32))]),
        pb.NextWorkRequest(
            known_plans=[bytes(32)], awaiting_approval=[bytes(32)], agreed=[pb.Agreed(plan_digest=bytes(32))]
        ),
        pb.NextWorkRequest(known_plans=[bytes(32)], agreed=[pb.Agreed(plan_digest=b"short")]),
    ],
)
def test_who_contradicts_itself_is_refused(request_: pb.NextWorkRequest) -> None:
    with refused(Code.PROTOCOL, ""):
        parse_poll(request_)


def test_what_is_not_durable_does_not_count(tmp_path: Path) -> None:
    """The process dies while it stores the last agreement: the next one still waits for that person."""

    async def dying(life: Life) -> None:
        await receive(life, anna=RULES, carl=RULES, bert=WAITS)
        await asyncio.sleep(2 * MINUTE)
        arm("consent-storing", _die)
        started = asyncio.create_task(life.started())
        with pytest.raises(Exception, match="a change failed"):
            await receive(life, bert=RULES)
        disarm()
        await asyncio.sleep(30)
        assert not started.done(), "neither begun nor given up"
        started.cancel()

    async def again(life: Life) -> float:
        assert life.phase.consent_of_site("bert").state is ConsentState.WAITING
        assert life.phase.consent_of_site("anna").state is ConsentState.AGREED
        await receive(life, anna=RULES, bert=RULES, carl=RULES)
        return await life.started()

    assert lived(tmp_path, dying, again)[-1] == pytest.approx(2 * MINUTE + 30, abs=0.1)


def _die() -> None:
    raise RuntimeError("the power is gone")
