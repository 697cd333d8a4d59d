"""Required sites, quorum, deadline: who is waited for, and what the release says of the others."""

from __future__ import annotations

import asyncio

import pytest

from eigenveil.errors import Code
from eigenveil.numerics.encoding import frozen
from eigenveil.reporting.verify import load_release
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.states import ConsentState, SiteConsent
from eigenveil_server.studies import contributions
from tests.server.deadlines import Place, Tick, pass_without
from tests.server.rig import Client, Rig, Sites, answering, refusal, study_toml


def spent(rig: Rig) -> tuple[int, int]:
    books = rig.repository.ledger  # an end is stored a moment before this ledger has it
    return books.read(lambda ledger: (ledger.spent.micro_rho, ledger.committed().micro_rho))


async def declining(client: Client, reason: pb.DeclineReason.ValueType) -> None:
    while True:
        query = await client.query()
        await client.stub.Decline(
            pb.DeclineRequest(plan_digest=bytes.fromhex(query.plan_digest), round=query.round, reason=reason)
        )


async def ends(analyst: Client, toml: str, submission: str = "one") -> pb.StudyEvent:
    """Submit and watch to the end; the last event."""
    digest = await analyst.submit(toml, submission)
    return (await analyst.events(digest))[-1]


def carl_is_idle(site: str, place: Place) -> bool:
    return site == "carl"


async def test_a_round_waits_for_the_deadline_and_the_release_names_the_absent(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, ada: Client
) -> None:
    pass_without(monkeypatch, carl_is_idle)

    sites = dict(await rig.sites())
    carl = sites.pop("carl")
    async with answering(sites):
        digest = await ada.submit(study_toml(quorum=2))
        assert (await ada.events(digest))[-1].state == pb.STUDY_STATE_RELEASED
    rounds = load_release(await ada.release(digest)).document["rounds"]
    for one in rounds:
        assert one["present"] == ["anna", "bert"]
        assert one["absent"] == {"carl": "did not answer"}
    assert await carl.release(digest)


async def test_a_missed_quorum_and_an_absent_required_site_end_the_study(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, ada: Client
) -> None:
    pass_without(monkeypatch, carl_is_idle)

    sites = dict(await rig.sites())
    del sites["carl"]
    async with answering(sites):
        all_of_them = await ends(ada, study_toml())
        toml = study_toml(name="two", quorum=1, required=["carl"])
        digest = await ada.submit(toml, "two")
        needed = (await ada.events(digest))[-1]
    assert (all_of_them.state, needed.state) == (pb.STUDY_STATE_FAILED,) * 2
    assert "2 of the 3 sites needed answered" in all_of_them.failure
    assert "carl: did not answer" in needed.failure
    refused = await refusal(ada.release(digest))
    assert (refused.code, str(refused)) == (Code.STUDY_FAILED, needed.failure)
    assert spent(rig) == (0, 0)


async def test_when_every_site_is_gone_the_study_fails_and_releases_its_reservation(
    rig: Rig, sites: Sites, monkeypatch: pytest.MonkeyPatch, ada: Client
) -> None:
    pass_without(monkeypatch, lambda site, place: place[0] > 0)

    digest = await ada.submit(study_toml(quorum=1))
    for site in sites.values():
        query = await site.query()
        await site.contribute(query, frozen([60]))
    last = (await ada.events(digest))[-1]
    assert last.state == pb.STUDY_STATE_FAILED
    assert last.failure.startswith("round 2: 0 of the 1 sites needed answered")
    assert last.spent_micro_rho == query.priced.micro_rho
    assert spent(rig) == (query.priced.micro_rho, query.priced.micro_rho)


async def test_a_refusal_that_depends_on_records_is_shown_to_the_operator_alone(
    rig: Rig, ada: Client
) -> None:
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


async def test_nothing_is_seen_of_a_draw_before_its_tick(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, sites: Sites, ada: Client
) -> None:
    """[P6] [P27] Not that the set of sites is frozen, nor the price, nor the next question."""
    tick = Tick(monkeypatch)

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


async def test_the_set_of_a_closed_round_is_not_revealed_before_its_release(
    rig: Rig, sites: Sites, ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[P27] Neither by an answer that waited for the others when it was closed, nor by what a site says."""
    tick = Tick(monkeypatch)
    monkeypatch.setattr(contributions, "GATHER_SECONDS", 1.0)  # longer than until the close
    pass_without(monkeypatch, carl_is_idle)

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


async def test_sites_learn_of_the_end(sites: Sites, ada: Client) -> None:
    digest = await ada.submit(study_toml())
    await sites["anna"].query()
    await ada.stub.CancelStudy(pb.CancelStudyRequest(plan_digest=bytes.fromhex(digest)))
    await sites["anna"].work()
    assert sites["anna"].ended == {digest: pb.STUDY_STATE_CANCELLED}
    assert sites["anna"].known == []
