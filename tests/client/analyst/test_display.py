"""What a log of a study's events says."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from eigenveil.errors import Code
from eigenveil_client.analyst.client import shown_names
from eigenveil_client.analyst.display import Display, approval_text, event_value, row_lines, row_value
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.support import refused


def event(round_state: str, **sites: str) -> pb.StudyEvent:
    return pb.StudyEvent(
        state=pb.STUDY_STATE_RUNNING,
        round_state=round_state,
        expected_rounds=3,
        micro_rho=100,
        sites=[pb.SiteStatus(site=site, status=status) for site, status in sites.items()],
    )


def lines(*events: pb.StudyEvent) -> list[str]:
    """What is printed where there is no terminal."""
    out = io.StringIO()
    with Display(Console(file=out, width=80), "a study") as display:
        for one in events:
            display.take(one)
    return out.getvalue().splitlines()


def test_an_attempt_at_a_masked_round_is_a_line_of_its_own() -> None:
    ready, first, second = event("open", a="ready", b="waiting"), event("fixed"), event("fixed")
    first.attempt, second.attempt = 1, 2
    assert [line.split("; ")[0] for line in lines(ready, first, second)] == [
        "round 1 of 3, open",
        "round 1 of 3, attempt 1, charged, and waits for the masked answers of its sites",
        "round 1 of 3, attempt 2, charged, and waits for the masked answers of its sites",
    ]
    assert event_value(second)["attempt"] == 2


def test_before_the_first_round_every_word_is_seen_and_a_stranger_s_text_moves_no_cursor() -> None:
    hour = 3_600_000
    waits = [pb.SiteStatus(site="a", status="agreed"), pb.SiteStatus(site="b", status="waiting for a person")]
    no = pb.SiteStatus(site="b", status="declined: purpose", text="[red]\x1b[2Jno\nno")
    first, second, third = (event("planned") for _ in range(3))
    first.MergeFrom(pb.StudyEvent(consent=waits, consent_ends_unix_ms=hour))
    second.MergeFrom(pb.StudyEvent(consent=[waits[0], no], starts_unix_ms=hour))
    third.MergeFrom(pb.StudyEvent(consent=[waits[0]]))
    message = "\n".join(lines(first, second, third))
    assert "until 1970-01-01 01:00 (UTC)" in message
    assert "b: waiting for a person" in message
    assert "starts after 1970-01-01 01:00 (UTC)" in message
    assert '("[red]?[2Jno?no")' in message
    assert "round 1" not in message


def test_studies_of_one_name_are_told_apart_and_all_others_keep_theirs() -> None:
    rows = [pb.StudyRow(name=name) for name in ("age", "bmi", "age", "age")]
    assert shown_names(rows) == ["age", "bmi", "age (2)", "age (3)"]


@pytest.mark.parametrize("time", [2**62, -(2**62), 10**15])
@pytest.mark.parametrize("shown", [lines, event_value])
def test_a_time_of_the_coordinator_s_that_no_calendar_has_is_refused(
    shown: Callable[[pb.StudyEvent], Any], time: int
) -> None:
    for name in ("consent_ends_unix_ms", "starts_unix_ms"):
        message = event("", a="waiting")
        message.consent.append(pb.SiteStatus(site="a", status="agreed"))
        setattr(message, name, time)
        with refused(Code.PROTOCOL, "an invalid time"):
            shown(message)


def test_figures_of_a_study_are_those_that_were_sent() -> None:
    row = pb.StudyRow(
        state=pb.STUDY_STATE_FAILED, micro_rho=400, spent_micro_rho=100, rounds=7,
        consent_ends_unix_ms=3_600_000, starts_unix_ms=7_200_000,
    )  # fmt: skip
    result, running = row_value(row), event("open", a="answered")
    assert (result["state"], result["rounds"], result["micro_rho"], result["spent_micro_rho"]) == (
        "failed",
        7,
        400,
        100,
    )
    times = (result["consent_ends"], result["starts"])
    assert times == ("1970-01-01T01:00:00+00:00", "1970-01-01T02:00:00+00:00")
    assert "spent: 25 % of its cost" in row_lines(row).splitlines()
    running.spent_micro_rho = 20
    value = event_value(running)
    assert (value["spent_micro_rho"], value["micro_rho"], value["sites"]) == (20, 100, {"a": "answered"})
    assert "; budget 20 %; a=answered" in value["text"]


def test_no_site_is_said_to_be_asked_before_the_operator_approved() -> None:
    query = {"sites": ["west"], "approval_seconds": 3600.0, "start_seconds": 600.0}
    stored, begun = (approval_text(query, state) for state in ("awaiting approval", "running"))
    assert stored.startswith("The coordinator's operator has to approve it first.")
    assert "west" in stored
    assert "until" not in stored
    assert begun.startswith("A person decides at west, and has until ")
    assert "The study starts 10 minutes after the last one agreed" in begun
