"""Consent before the first round, as watchers see it, and over real connections [R24]."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, time, timedelta
from functools import partial
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil.protocol.plan import plan_from_json
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.planning.submissions import check_decision_time
from tests.server.rig import Client, answering, made, refusal, serving, study_toml
from tests.support import refused


async def test_who_watches_sees_every_word_and_a_late_site_comes_in_as_ever(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c", long_poll_seconds=0.1)) as rig:
        sites, ada = dict(await rig.sites()), await rig.client(Role.ANALYST, "ada")
        carl = sites.pop("carl")
        async with answering(sites):
            digest = await ada.submit(study_toml(quorum=2), agreed=False)
            while not carl.known:
                await carl.work()
            waiting = pb.NextWorkRequest(known_plans=carl.known, awaiting_approval=carl.known)
            for _ in range(3):
                found = await carl.stub.NextWork(waiting)
                assert (found.consent, found.HasField("query")) == (b"", False), "nothing to do meanwhile"
            row = next(iter((await ada.stub.ListStudies(pb.ListStudiesRequest())).studies))
            assert {one.site: one.status for one in row.consent}["carl"] == "waiting for a person"
            assert row.consent_ends_unix_ms > row.submitted_unix_ms
            assert rig.repository.studies.rounds(digest) == 0, "nothing was asked"
            async with answering({"carl": carl}):
                events = await ada.events(digest)
        assert events[-1].state == pb.STUDY_STATE_RELEASED
        words = [{one.site: one.status for one in event.consent} for event in events]
        assert [word["carl"] for word in words if word][-1] == "agreed"
        assert not any(words[-3:]), "once a round is open, its answers are shown"


async def row_of(caller: Client, site: str) -> tuple[str, str]:
    """Statement of a site in the only study's row."""
    (row,) = (await caller.stub.ListStudies(pb.ListStudiesRequest())).studies
    return words([row])[site]


def words(messages: Iterable[pb.StudyEvent | pb.StudyRow]) -> dict[str, tuple[str, str]]:
    return {one.site: (one.status, one.text) for message in messages for one in message.consent}


async def test_a_person_s_reason_reaches_the_analyst_and_the_site_gets_no_query(tmp_path: Path) -> None:
    config = made(tmp_path / "c", long_poll_seconds=0.1)

    async with serving(config) as rig:
        sites, ada = dict(await rig.sites()), await rig.client(Role.ANALYST, "ada")
        bea, operator = await rig.client(Role.ANALYST, "bea"), await rig.client(Role.OPERATOR, "ada")
        carl = sites.pop("carl")
        digest = await ada.submit(study_toml(quorum=2), agreed=False)
        declined = partial(pb.DeclineRequest, plan_digest=bytes.fromhex(digest))
        no = declined(reason=pb.DECLINE_REASON_PERSON_PURPOSE, text="ask our board")
        await carl.stub.Decline(no)
        await carl.stub.Decline(no)  # the first reply was lost
        dora = await rig.client(Role.SITE, "dora")
        assert (await refusal(dora.stub.Decline(no))).code is Code.NOT_FOUND
        for odd in (
            declined(reason=pb.DECLINE_REASON_POLICY, text="a machine has no words"),
            declined(reason=pb.DECLINE_REASON_PERSON_TIMING, text="two\nlines"),
        ):
            assert (await refusal(sites["anna"].stub.Decline(odd))).code is Code.PROTOCOL
        listed = [await row_of(one, "carl") for one in (ada, bea, operator)]
        async with answering(sites):
            events = await ada.events(digest)
        assert events[-1].state == pb.STUDY_STATE_RELEASED
        result = [words(await one.events(digest))["carl"] for one in (ada, bea)]
        mine, theirs = ("declined: purpose", "ask our board"), ("declined: purpose", "")
        assert (listed, result) == ([mine, theirs, theirs], [mine, theirs]), "to its analyst alone"
        assert (await carl.work()) is None
        assert carl.plans == {}, "no question, no plan"
        (line,) = rig.rows("SELECT detail FROM audit WHERE kind = 'declined'")
        assert line["detail"].endswith(": purpose")


@pytest.mark.parametrize(
    ("reason", "sent", "told"),
    [
        (pb.DECLINE_REASON_POLICY, "columns", "columns"),
        (pb.DECLINE_REASON_POLICY, "a note to the analyst", ""),
        (pb.DECLINE_REASON_POLICY, "of_a_later_version", ""),
        (pb.DECLINE_REASON_BUDGET, "columns", ""),
        (pb.DECLINE_REASON_PERSON_PURPOSE, "columns", ""),
    ],
)
async def test_the_rule_of_a_decline_is_for_the_analyst_of_the_study_and_the_operator(
    tmp_path: Path, reason: pb.DeclineReason.ValueType, sent: str, told: str
) -> None:
    config = made(tmp_path / "c", long_poll_seconds=0.1)
    async with serving(config) as rig:
        sites, ada = dict(await rig.sites()), await rig.client(Role.ANALYST, "ada")
        others = [await rig.client(Role.ANALYST, "bea"), await rig.client(Role.OPERATOR, "ada")]
        digest = await ada.submit(study_toml(quorum=2), agreed=False)
        decline = partial(pb.DeclineRequest, reason=reason, rule=sent)
        await sites["carl"].stub.Decline(decline(plan_digest=bytes.fromhex(digest)))
        rules = [await rule_of(one) for one in (ada, *others)]
        assert rules == [told, "", ""]
        failing = await ada.submit(study_toml(), "fails", agreed=False)
        await sites["carl"].stub.Decline(decline(plan_digest=bytes.fromhex(failing)))
        for caller in (ada, *others[:1]):
            events = await caller.events(failing)
            assert events[-1].state == pb.STUDY_STATE_FAILED
            assert sent not in events[-1].failure, "everybody reads why a study failed"
            shown = {one.rule for event in events for one in event.consent}
            assert shown <= {"", told if caller is ada else ""}
        for line in rig.rows("SELECT detail FROM audit WHERE kind = 'declined'"):
            assert line["detail"].endswith(" columns") == (told == "columns")


async def rule_of(caller: Client) -> str:
    """Rule that carl's decline names, in the only study's row."""
    (row,) = (await caller.stub.ListStudies(pb.ListStudiesRequest())).studies
    return {one.site: one.rule for one in row.consent}["carl"]


async def test_people_have_an_hour_or_more_by_the_last_day_of_a_study(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c", long_poll_seconds=0.1)) as rig:
        await rig.sites()
        ada, today = await rig.client(Role.ANALYST, "ada"), datetime.now(UTC).date()
        past, ahead = (study_toml(decide_by=f"{today + timedelta(days=days)}") for days in (-1, 2))
        problem = await refusal(ada.submit(past, "late", agreed=False))
        assert (problem.code, "less than an hour away" in str(problem)) == (Code.BAD_STUDY, True)
        assert rig.rows("SELECT * FROM studies") == []
        stored = rig.repository.studies.get(await ada.submit(ahead, "in-time", agreed=False))
        plan = plan_from_json(stored.plan_json)
        midnight = datetime.combine(today + timedelta(days=3), time(), UTC).timestamp()
        check_decision_time(plan, midnight - 3600)
        with refused(Code.BAD_STUDY, "less than an hour away"):
            check_decision_time(plan, midnight - 3599)
