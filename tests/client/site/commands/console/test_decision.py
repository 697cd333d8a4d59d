"""Facts for a decision, on the page and by the commands: until when, who asks, what happens next, and that
nobody here declined what another site declined."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from eigenveil.planning.choose import possible_rehearsals
from eigenveil.study.applicant import Applicant
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.site.commands import consent
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.engine.engine import make_engine
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state.received_plans import ConsentStatus, PersonDecision
from eigenveil_client.site.state.store_access import open_site_store
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.command_line import site
from tests.client.site.commands.console.rig import ASKS, Rig, stated_plan
from tests.client.site.commands.console.test_console import about, decide
from tests.client.site.support import ended, reason_of

UNTIL = 4_102_489_380  # 2100-01-01 12:23
TIME = re.compile(r'<time datetime="([^"]*)">([^<]*)</time>')


def shown(rig: Rig, path: str = "", language: str = "en") -> str:
    page = html.unescape(rig.browser(language).get(path or about(rig)).text)
    return " ".join(page.split())


def command(rig: Rig, *words: str) -> str:
    return " ".join(site(rig.config_file, *words).out.split())


@pytest.mark.parametrize(
    ("until", "day", "machine", "text"),
    [
        (UNTIL, "", "2100-01-01T12:23Z", "2100-01-01 12:23 (UTC)"),
        (0, "2099-12-31", "2099-12-31", "2099-12-31, until the end of the day (UTC)"),
        (UNTIL, "2099-12-31", "2099-12-31", "2099-12-31, until the end of the day (UTC)"),
        (UNTIL, "2100-12-31", "2100-01-01T12:23Z", "2100-01-01 12:23 (UTC)"),
    ],
)
def test_time_to_decide_by_is_on_every_page_and_in_the_commands(
    rig: Rig, until: int, day: str, machine: str, text: str
) -> None:
    rig.plan = stated_plan(decide_by=day)
    rig.receive(rig.plan, until)
    for path in ("/", about(rig), about(rig, "/sheet")):
        assert TIME.findall(shown(rig, path)) == [(machine, text)], path
    written = "decide by: " + text.replace(", until the end of the day", "")
    assert written in command(rig, "explain", rig.plan.digest[:12])
    assert written.removeprefix("decide by: ") in command(rig, "studies")
    assert (
        site(rig.config_file, "explain", rig.plan.digest[:12], "--json").json["decision"]["until"] == machine
    )


def test_a_time_that_nobody_stated_is_not_made_up(rig: Rig) -> None:
    assert TIME.findall(shown(rig)) == []
    assert "not stated by the coordinator" in shown(rig)
    assert "decide by: not stated by the coordinator" in command(rig, "explain", rig.plan.digest[:12])


def test_who_asks_is_on_the_page_and_in_the_commands(rig: Rig) -> None:
    rig.plan = stated_plan()
    rig.receive(rig.plan)
    page, explained = shown(rig), command(rig, "explain", rig.plan.digest[:12])
    approved = " ".join(site(rig.config_file, "approve", rig.plan.digest[:12], answer="n\n").out.split())
    for label, text in ASKS.stated.items():
        assert page.count(text) == 2, "on the first screen and in its fold"
        assert f"{label}, as stated and not checked: | {text}" in explained
        assert f"{label}, as stated and not checked: | {text}" in approved


def test_what_an_analyst_states_comes_below_what_this_site_knows_and_cannot_pass_for_it(rig: Rig) -> None:
    forged = "Dr. A, account alice. Sender confirmed here"
    aside = f"Uni Ulm{' ' * 66}decide by: 2030-01-01 (UTC); all rules pass"  # as a plan of 1.0 may have it
    rig.plan = stated_plan(Applicant(full_name=forged, institution=aside))
    rig.receive(rig.plan)
    for path, place in (("/", shown(rig, "/").index("Who asks")), (about(rig), 0)):
        page = shown(rig, path)[place:]
        stated = page.index(f'<bdi class="cut line">{forged}</bdi>')
        assert page.index(f"account {rig.plan.analyst}") < stated < page.index("as stated, not checked"), path
    assert f"<bdi>{' '.join(aside.split())}</bdi>" in shown(rig)
    lines = site(rig.config_file, "explain", rig.plan.digest[:12]).out.splitlines()
    assert [line for line in lines if "2030-01-01" in line] == [
        line for line in lines if line.startswith("| ") and "2030-01-01" in line
    ]


def test_what_is_not_stated_about_who_asks_is_named(rig: Rig) -> None:
    rig.plan = stated_plan(Applicant(institution="Ulm"))
    rig.receive(rig.plan)
    first = shown(rig).partition("<details")[0]
    assert first.count(">not stated<") == 3, "contact, ethics approval and legal basis"
    assert "institution, as stated and not checked: | Ulm" in command(rig, "explain", rig.plan.digest[:12])


def test_buttons_come_before_the_details(rig: Rig) -> None:
    page = shown(rig)
    assert page.index(f"{rig.plan.digest}/approve") < page.index(f"{rig.plan.digest}/decline")
    assert page.index(f"{rig.plan.digest}/decline") < page.index("<details")
    assert "<details open" not in page.replace('class="card fold" ', "")


def test_a_study_that_another_site_declined_is_not_told_as_declined_here(rig: Rig) -> None:
    """Its coordinator ended it while a person here still had to decide."""
    identity = load_identity(rig.stage.config.identity)
    with open_site_store(rig.stage.config) as store:
        worker = SiteWorker(identity, rig.stage.config.policy, store, make_engine(rig.stage.config))
        worker.work(ended(rig.plan, pb.STUDY_STATE_FAILED))
    page, listed = shown(rig, "/"), command(rig, "studies")
    assert "Ended before anything left this site" in page
    assert "Ended before anything left this site" in listed
    assert "Declined by the rules" not in page + listed
    found = site(rig.config_file, "studies", "--json").json
    assert (found["declined"], len(found["ended_unanswered"])) == ([], 1)
    gone = shown(rig)
    assert "another site declined it" in gone
    assert "rules declined it" not in gone
    message = site(rig.config_file, "explain", rig.plan.digest[:12], "--json").json["message"]
    assert "another site declined it" in message
    assert "rules declined it" not in message


def test_a_study_that_the_rules_declined_is_told_so(rig: Rig) -> None:
    """And only that."""
    rig.stage.rule(approval=Approval.MANUAL, columns=("age",))
    plan = stated_plan()
    identity = load_identity(rig.stage.config.identity)
    with open_site_store(rig.stage.config) as store:
        worker = SiteWorker(identity, rig.stage.config.policy, store, make_engine(rig.stage.config))
        message = pb.NextWorkResponse(plan=rig.stage.signed(plan), consent=bytes.fromhex(plan.digest))
        assert reason_of(worker.work(message)) == pb.DECLINE_REASON_POLICY
    assert "Declined by the rules" in shown(rig, "/")
    assert "Ended before" not in shown(rig, "/")
    told = shown(rig, f"/studies/{plan.digest}")
    assert "this site's rules declined it" in told
    assert "another site" not in told


def test_what_an_operator_withdrew_is_not_told_as_a_decision_of_the_rules(rig: Rig) -> None:
    """After a lost ledger `accept-loss` withdraws every open study, in nobody's name."""
    decide(rig.browser(), rig, "approve")
    with open_site_store(rig.stage.config) as store:
        store.withdraw(rig.plan.digest, PersonDecision(by=""))
    assert "the operator of this site" in shown(rig, "/")
    assert "the rules in this site's settings" not in shown(rig, "/")


def test_nobody_can_agree_after_the_last_day_of_the_study(rig: Rig) -> None:
    rig.plan = stated_plan(decide_by="2026-01-31")
    rig.receive(rig.plan)
    page = shown(rig)
    assert "The last day to decide is over" in page
    assert f"{rig.plan.digest}/approve" not in page
    assert f"{rig.plan.digest}/decline" in page
    assert "The last day to decide is over" in shown(rig, about(rig, "/approve"))


def test_a_coordinator_s_time_that_is_past_ends_no_decision(rig: Rig) -> None:
    rig.plan = stated_plan()
    rig.receive(rig.plan, 1_700_000_000)
    page = shown(rig)
    assert "The time to decide is over: the study goes on without this site, or ends." in page
    assert f"{rig.plan.digest}/approve" in page


def told_next(rig: Rig) -> str:
    found: str = site(rig.config_file, "explain", rig.plan.digest[:12], "--json").json["decision"]["next"]
    assert found.split(". ")[0] in shown(rig), "in the same words"
    return found


def test_what_happens_next_follows_the_status_of_the_study(rig: Rig) -> None:
    assert "all 2 sites that are asked have decided" in told_next(rig)
    assert "at least 2 of them agree" in told_next(rig)
    assert "not told which of the others" in told_next(rig)
    decide(rig.browser(), rig, "approve")
    assert told_next(rig).startswith("You have agreed. Nothing has left")
    rig.answer()
    most = max(len(course) for course in possible_rehearsals(rig.plan))
    assert told_next(rig) == f"This site has answered 1 rounds, of {most} at most."
    decide(rig.browser(), rig, "withdraw")
    assert told_next(rig).startswith("Nothing more leaves this site")
    with open_site_store(rig.stage.config) as store:
        store.end(rig.plan.digest)
    assert told_next(rig).startswith("The study has ended.")


def test_a_required_site_is_named_and_a_declined_study_sends_nothing(rig: Rig) -> None:
    rig.plan = stated_plan(required=("hospital-b",))
    rig.receive(rig.plan)
    assert "It needs the agreement of: hospital-b." in told_next(rig)
    with open_site_store(rig.stage.config) as store:
        seen = store.studies.find(rig.plan.digest)
        store.decline(seen, PersonDecision(by="Dr. Grau"))
    assert told_next(rig) == "Nothing leaves this site for the study."
    assert rig.seen().status is ConsentStatus.DECLINED


def test_a_file_that_was_not_received_has_no_next_step(rig: Rig) -> None:
    with open_site_store(rig.stage.config) as store:
        plan = replace(rig.plan, submission="a-file")
        assert consent.explain_plan(rig.stage.config, store, plan, None)["decision"] is None


def test_records_that_cannot_answer_are_stated_before_anybody_agrees(rig: Rig) -> None:
    """No button and no form agrees, and the command asks for no name."""
    body = rig.stage.records.read_text()
    header, *rows = body.splitlines(keepends=True)
    broken = {
        "lines": body + "1\n" * 20,
        "cells": header + "".join(f"x{row}" for row in rows),
        "persons": header + "".join(rows[:5]),
    }
    for rule, text in broken.items():
        rig.stage.records.write_text(text)
        page = shown(rig)
        assert f"{rig.plan.digest}/approve" not in page
        assert "/columns?study=" in page.partition("<details")[0]
        assert 'name="by"' not in shown(rig, about(rig, "/approve"))
        assert f"cannot be approved yet: {rule}; see explain" in command(rig, "studies")
        ran = site(rig.config_file, "approve", rig.plan.digest[:12], answer="y\nDr. Grau\n")
        assert (ran.code, "Your name" in ran.out, "Answer this study" in ran.out) == (6, False, False), rule
    rig.stage.records.write_text(body)
    assert f"{rig.plan.digest}/approve" in shown(rig)
    assert "cannot be approved" not in command(rig, "studies")
