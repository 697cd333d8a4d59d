"""Required sites, quorum, deadline: who is waited for, and what the release says of the others."""

from __future__ import annotations

import asyncio
import time

import pytest

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil.numerics.encoding import frozen
from eigenveil.planning.choose import rehearse
from eigenveil.reporting.verify import load_release
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rounds.round import Round
from eigenveil_server.storage.states import ConsentState, SiteConsent
from eigenveil_server.storage.study_reads import RoundAnswers
from eigenveil_server.studies import contributions
from tests.server.deadlines import Place, Tick, pass_without
from tests.server.rig import SITES, Client, Rig, Sites, answering, refusal, study_toml
from tests.support import a_plan


def spent(rig: Rig) -> tuple[int, int]:
    """Micro-rho spent, and spent or reserved."""
    books = rig.repository.ledger  # an end is stored a moment before this ledger has it
    return books.read(lambda ledger: (ledger.spent.micro_rho, ledger.committed().micro_rho))


async def declining(client: Client, reason: pb.DeclineReason.ValueType) -> None:
    """Decline every round."""
    while True:
        query = await client.query()
        await client.stub.Decline(
            pb.DeclineRequest(plan_digest=bytes.fromhex(query.plan_digest), round=query.round, reason=reason)
        )


async def ends(analyst: Client, toml: str, submission: str = "one") -> pb.StudyEvent:
    """Submit and watch to the end; the last event."""
    digest = await analyst.submit(toml, submission)
    return (await analyst.events(digest))[-1]


def carl_is_silent(site: str, place: Place) -> bool:
    return site == "carl"


async def test_a_deadline_is_as_long_as_is_stated() -> None:
    """The wait that these tests cut short, or draw out, in all studies here."""

    async def scenario() -> float:
        plan = a_plan()
        opened = Round(rehearse(plan)[0], plan.study.federation, RoundAnswers(macs={}, declined={}))
        start = time.monotonic()
        assert not await opened.complete(0.05)
        return time.monotonic() - start

    assert (await scenario()) >= 0.05


async def test_a_round_waits_for_the_deadline_and_the_release_names_the_absent(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    pass_without(monkeypatch, carl_is_silent)

    sites = dict(await rig.sites())
    analyst = await rig.client(Role.ANALYST, "ada")
    quiet_site = sites.pop("carl")
    async with answering(sites):
        digest = await analyst.submit(study_toml(quorum=2))
        assert (await analyst.events(digest))[-1].state == pb.STUDY_STATE_RELEASED
    rounds = load_release(await analyst.release(digest)).document["rounds"]
    for one in rounds:
        assert one["present"] == ["anna", "bert"]
        assert one["absent"] == {"carl": "did not answer"}
    assert await quiet_site.release(digest)


async def test_a_decline_is_not_waited_for_and_is_named_with_its_reason(rig: Rig) -> None:
    sites = dict(await rig.sites())
    analyst = await rig.client(Role.ANALYST, "ada")
    task = asyncio.create_task(declining(sites.pop("carl"), pb.DECLINE_REASON_BUDGET))
    async with answering(sites):
        digest = await analyst.submit(study_toml(quorum=2, deadline_seconds=60.0))
        events = await analyst.events(digest)
    task.cancel()
    assert events[-1].state == pb.STUDY_STATE_RELEASED
    statuses = {one.site: one.status for one in events[-1].sites}
    assert statuses["carl"] == "declined:budget"
    document = load_release(await analyst.release(digest)).document
    assert document["rounds"][0]["absent"] == {"carl": "declined: budget"}


async def test_a_required_site_that_declines_ends_the_study_at_once(rig: Rig) -> None:
    sites = dict(await rig.sites())
    analyst = await rig.client(Role.ANALYST, "ada")
    task = asyncio.create_task(declining(sites["anna"], pb.DECLINE_REASON_POLICY))
    toml = study_toml(quorum=1, required=["anna"], deadline_seconds=600.0)
    last = await ends(analyst, toml)
    task.cancel()
    assert last.state == pb.STUDY_STATE_FAILED
    assert "required sites did not answer: anna" in last.failure
    assert "anna: declined: policy" in last.failure
    assert last.round_state == "failed"
    assert spent(rig) == (0, 0)


async def test_a_missed_quorum_and_an_absent_required_site_end_the_study(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    pass_without(monkeypatch, carl_is_silent)

    sites = dict(await rig.sites())
    analyst = await rig.client(Role.ANALYST, "ada")
    del sites["carl"]
    async with answering(sites):
        all_of_them = await ends(analyst, study_toml())
        toml = study_toml(name="two", quorum=1, required=["carl"])
        digest = await analyst.submit(toml, "two")
        needed = (await analyst.events(digest))[-1]
    assert (all_of_them.state, needed.state) == (pb.STUDY_STATE_FAILED,) * 2
    assert "2 of the 3 sites needed answered" in all_of_them.failure
    assert "carl: did not answer" in needed.failure
    refused = await refusal(analyst.release(digest))
    assert (refused.code, str(refused)) == (Code.STUDY_FAILED, needed.failure)
    assert spent(rig) == (0, 0)


async def test_when_every_site_is_gone_the_study_fails_and_keeps_only_what_it_spent(
    rig: Rig, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    pass_without(monkeypatch, lambda site, place: place[0] > 0)

    analyst = await rig.client(Role.ANALYST, "ada")
    digest = await analyst.submit(study_toml(quorum=1))
    for site in sites.values():
        query = await site.query()
        await site.contribute(query, frozen([60]))
    last = (await analyst.events(digest))[-1]
    assert last.state == pb.STUDY_STATE_FAILED
    assert last.failure.startswith("round 2: 0 of the 1 sites needed answered")
    assert last.spent_micro_rho == query.priced.micro_rho
    assert spent(rig) == (query.priced.micro_rho, query.priced.micro_rho)


async def test_a_refusal_that_records_may_decide_is_told_to_the_operator_alone(rig: Rig, ada: Client) -> None:
    sites = dict(await rig.sites())
    task = asyncio.create_task(declining(sites.pop("carl"), pb.DECLINE_REASON_FAILURE))
    async with answering(sites):
        digest = await ada.submit(study_toml(quorum=2, deadline_seconds=60.0))
        events = await ada.events(digest)
        needed = await ends(ada, study_toml(name="all", deadline_seconds=60.0), "two")
    task.cancel()
    absent = load_release(await ada.release(digest)).document["rounds"][0]["absent"]
    assert absent == {"carl": "declined"}
    message = {one.status for event in events for one in event.sites if one.site == "carl"}
    assert message == {"waiting", "declined"}
    assert "carl: declined" in needed.failure  # the others may not have answered by then
    assert "failure" not in needed.failure
    rows = (await ada.stub.ListStudies(pb.ListStudiesRequest())).studies
    assert {row.failure for row in rows} == {"", needed.failure}
    audited = rig.rows("SELECT subject, detail FROM audit WHERE kind = 'declined' ORDER BY id LIMIT 1")
    assert tuple(audited[0]) == ("site/carl", f"study {digest} round 0: failure")


async def test_nothing_is_seen_of_a_draw_before_its_tick(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """[P6] [P27] Not that the set of sites is frozen, nor the price, nor the next question."""
    tick = Tick(monkeypatch)

    sites = await rig.sites()
    ada = await rig.client(Role.ANALYST, "ada")
    digest = await ada.submit(study_toml())
    studies = rig.repository.studies
    answers = [
        asyncio.create_task(site.contribute(await site.query(), frozen([60]))) for site in sites.values()
    ]
    await tick.due()
    assert {event.round_state for event in studies.events(digest, 0)} == {"planned", "open"}
    assert (studies.sealed(digest, 0), spent(rig)[0], studies.rounds(digest)) == (None, 0, 1)
    assert not all(answer.done() for answer in answers)
    tick.go.set()
    await asyncio.gather(*answers)
    assert (await sites["anna"].query()).round == 1
    states = [(event.round, event.round_state) for event in studies.events(digest, 0)]
    assert states[-2:] == [(0, "released"), (1, "open")]
    assert studies.round_ms(digest)[0] >= 0


async def test_nobody_is_told_with_whom_a_round_was_closed_before_its_release(
    rig: Rig, sites: Sites, ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[P27] Neither by an answer that waited for the others when it was closed, nor by what a site says."""
    tick = Tick(monkeypatch)
    monkeypatch.setattr(contributions, "GATHER_SECONDS", 1.0)  # longer than until the close
    pass_without(monkeypatch, carl_is_silent)

    digest = await ada.submit(study_toml(quorum=2))
    query = await sites["anna"].query()
    answers = [asyncio.create_task(sites[name].contribute(query, frozen([60]))) for name in ("anna", "bert")]
    await tick.due()
    await (await rig.daemon.engine.run(digest)).note("carl", SiteConsent(state=ConsentState.WAITING))
    # They are not kept waiting for it, and what is stored for them names nobody.
    assert [answer.repeated for answer in await asyncio.gather(*answers)] == [False, False]
    events = rig.repository.studies.events(digest, 0)
    message = {one.status for event in events for one in event.sites}
    assert ({event.round_state for event in events}, message) == ({"planned", "open"}, {"waiting"})
    tick.go.set()
    assert (await sites["anna"].query()).round == 1
    (released,) = rig.repository.studies.sealed_rounds(digest)
    assert released.release.present == ("anna", "bert")


async def test_sites_are_told_of_studies_that_nobody_here_knows(sites: Sites, ada: Client) -> None:
    running, lost = bytes.fromhex(await ada.submit(study_toml())), b"\x07" * 32
    result = await sites["anna"].stub.NextWork(pb.NextWorkRequest(known_plans=[running, lost]))
    ended = [(one.plan_digest, one.state) for one in result.ended]
    assert ended == [(lost, pb.STUDY_STATE_UNSPECIFIED)]


async def test_sites_are_told_of_the_end(rig: Rig, sites: Sites) -> None:
    analyst = await rig.client(Role.ANALYST, "ada")
    digest = await analyst.submit(study_toml())
    await sites["anna"].query()
    await analyst.stub.CancelStudy(pb.CancelStudyRequest(plan_digest=bytes.fromhex(digest)))
    await sites["anna"].work()
    assert sites["anna"].ended == {digest: pb.STUDY_STATE_CANCELLED}
    assert sites["anna"].known == []


async def test_studies_run_side_by_side(rig: Rig, sites: Sites) -> None:
    analyst = await rig.client(Role.ANALYST, "ada")
    async with answering(sites):
        digests = await asyncio.gather(
            *(analyst.submit(study_toml(name=name), name) for name in ("x", "y", "z"))
        )
        ended = await asyncio.gather(*(analyst.events(digest) for digest in digests))
    assert {events[-1].state for events in ended} == {pb.STUDY_STATE_RELEASED}
    assert [site.ended.keys() <= set(digests) for site in sites.values()] == [True] * len(SITES)
    charged = sum(events[-1].spent_micro_rho for events in ended)
    assert spent(rig) == (charged, charged)
