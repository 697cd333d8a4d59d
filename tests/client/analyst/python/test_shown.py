"""A run as a script, a terminal and a notebook show it: state, progress, who is awaited; public names."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import eigenveil
from eigenveil import Column, RequestError
from eigenveil.dictionary.directory import SiteStatement
from eigenveil.dictionary.formats import parse_dictionary
from eigenveil.errors import Code
from eigenveil.planning.choose import possible_rehearsals, rehearse
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.applicant import Applicant
from eigenveil.study.study import Study
from eigenveil.study.toml import draft_from_toml
from eigenveil_client.analyst.display import Display, RunState, awaited_line, rounds_line
from eigenveil_client.analyst.federation import FederationView, ListedSite
from eigenveil_client.analyst.python import run as runs
from eigenveil_client.analyst.python.connect import ConnectedFederation
from eigenveil_client.analyst.python.plan import plan_of
from eigenveil_client.analyst.python.run import Run, RunStatus, status_of
from eigenveil_client.analyst.python.study import FederatedStudy, draft_of, study_from
from eigenveil_common.examples import example
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.core.dictionary.test_readiness import LIMITS
from tests.core.study.test_scaling import NAMES, clinical
from tests.support import Capture, Patch, a_plan, a_study, refused

NOON = int(datetime(2027, 1, 2, 12, tzinfo=UTC).timestamp() * 1000)
ENDED = pb.StudyEvent(state=pb.STUDY_STATE_RELEASED, expected_rounds=111)


def event(round: int, **more: Any) -> pb.StudyEvent:
    sites = [pb.SiteStatus(site=name, status=status) for name, status in more.pop("sites", {}).items()]
    return pb.StudyEvent(
        state=pb.STUDY_STATE_RUNNING, round=round, sites=sites, **{"expected_rounds": 111} | more
    )


WAITING = event(3, sites={"north": "answered", "south": "waiting"}, round_ends_unix_ms=NOON)


def status(state: Any) -> RunStatus:
    return status_of(pb.StudyRow(state=state, rounds=15, micro_rho=4, spent_micro_rho=4))


def test_a_status_is_what_it_prints() -> None:
    found = status(pb.STUDY_STATE_RELEASED)
    assert found.state == "released"
    assert found.state is RunState.RELEASED
    assert found == "released" == str(found)
    assert found != "running"
    assert found == status(pb.STUDY_STATE_RELEASED) != status(pb.STUDY_STATE_FAILED)
    assert (found.rounds, found.spent, found.ended) == (15, 1.0, True)
    assert status(99).state is RunState.UNKNOWN


@pytest.mark.parametrize(("shown", "text"), [
    (event(65), "round 66 of at most 111"),
    (event(0, expected_rounds=1), "round 1 of at most 1"),
    (event(65, expected_rounds=51), "round 66"),  # as a coordinator of version 1.0 counts
])  # fmt: skip
def test_a_round_is_never_the_last_of_fewer(shown: pb.StudyEvent, text: str) -> None:
    assert rounds_line(shown) == text


def test_a_plan_counts_the_rounds_of_the_most_records() -> None:
    study = a_study(12, algorithm=Algorithm.DP_PCA, expected_records=10_000)
    plan = a_plan(study)
    most = max(map(len, possible_rehearsals(plan)))
    assert most == len(rehearse(plan, plan.most_records)) == 111
    assert f"at most {most} rounds" in repr(plan_of(study))


def test_those_who_are_awaited_are_shown_with_the_time_limit() -> None:
    assert awaited_line(WAITING) == "waits for south until 2027-01-02 12:00 (UTC)"
    consent = event(0, consent_ends_unix_ms=NOON)
    consent.consent.extend(pb.SiteStatus(site=name, status=said) for name, said in (
        ("a", "agreed"), ("b", "waiting for a person"), ("c", "no answer yet"), ("d", "declined: purpose"),
    ))  # fmt: skip
    assert awaited_line(consent) == "waits for b, c until 2027-01-02 12:00 (UTC)"
    assert awaited_line(event(1, sites={"north": "answered"})) == ""
    assert awaited_line(ENDED) == ""


class Watched:
    """A coordinator whose study has these events."""

    def __init__(self, *events: pb.StudyEvent) -> None:
        self.events = events

    def each(self, work: object) -> Iterator[pb.StudyEvent | None]:
        for one in self.events:
            yield one
            if one is WAITING:
                time.sleep(0.5)  # a terminal is drawn ten times a second


def a_run(*events: pb.StudyEvent) -> Run:
    coordinator: Any = Watched(*events, ENDED)
    run = Run(coordinator, "ab" * 32, "pilot")
    run._release = RELEASE
    return run


RELEASE: Any = object()
MANY = tuple(event(i, round_state=state) for i in range(66) for state in ("planned", "open"))


@pytest.mark.parametrize(("progress", "lines"), [(None, 0), (False, 0), (True, 67)])
def test_a_script_is_silent_unless_it_asks_and_then_has_a_line_a_round(
    progress: bool | None, lines: int, capfd: Capture
) -> None:
    assert a_run(*MANY).wait(progress=progress) is RELEASE
    out, err = capfd.readouterr()
    assert (len(out.splitlines()), err) == (lines, "")


@pytest.mark.parametrize(("progress", "shown"), [(None, True), (False, False)])
def test_a_terminal_shows_one_bar_with_the_most_rounds_and_the_awaited(
    progress: bool | None, shown: bool, monkeypatch: Patch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(runs, "console", Console(file=out, force_terminal=True, width=200))
    a_run(*MANY, WAITING).wait(progress=progress)
    text = out.getvalue()
    assert ("round 4 of at most 111; waits for south until 2027-01-02 12:00 (UTC)" in text) is shown
    assert bool(text) is shown
    assert text.count("\n") <= 1


def test_a_title_from_elsewhere_moves_no_cursor() -> None:
    out = io.StringIO()
    with Display(Console(file=out, force_terminal=True, width=200), "pi[b]lot\x1b[2J") as display:
        display.take(WAITING)
    assert "\x1b[2J" not in out.getvalue()
    assert "pi[b]lot?[2J" in out.getvalue()


def test_a_notebook_has_a_bar_and_the_awaited() -> None:
    run = a_run(WAITING)
    assert "<progress" not in run._repr_html_()
    run._seen = WAITING
    assert '<progress value="3" max="111"' in run._repr_html_()
    assert "waits for south" in run._repr_html_()


DICTIONARY = parse_dictionary(example("dictionary"))


def view(dictionary: Any = DICTIONARY) -> FederationView:
    return FederationView(
        name="here", sites=(ListedSite(name="north", statement=None, seen=None),), dictionary=dictionary,
        approval_seconds=1e6, start_seconds=0,
    )  # fmt: skip


def federated(dictionary: Any = DICTIONARY, **fields: Any) -> FederatedStudy:
    me = SimpleNamespace(identity=SimpleNamespace(name="ann"))
    coordinator: Any = SimpleNamespace(profile=None, identity=me)
    seen = view(dictionary)
    return study_from(coordinator, seen, draft_of(fields, seen), Path(), Applicant())


def test_a_federation_without_a_dictionary_takes_columns_and_says_so() -> None:
    with pytest.raises(RequestError, match=r"Column\(\.\.\.\).*\[\[columns\]\]") as refusal:
        federated(None, columns=["age", "bmi"])
    assert refusal.value.code is Code.NOT_FOUND
    columns = [Column(name=name, unit=name, lower=0, upper=1) for name in ("age", "bmi")]
    assert federated(None, columns=columns).study.columns == tuple(columns)


@pytest.mark.parametrize(
    ("stated", "person"),
    [(["patient", "patient"], "patient"), (["patient", "case"], None), (["", ""], None), ([], None)],
)
def test_the_person_column_that_all_sites_state_is_the_default(stated: list[str], person: str | None) -> None:
    sites = [
        ListedSite(
            name=f"site-{i}",
            seen=None,
            statement=SiteStatement(
                needs_approval=False,
                max_missing=0.5,
                max_unreadable=0.5,
                max_out_of_bounds=0.5,
                limits=replace(LIMITS, person_column=name),
            ),
        )
        for i, name in enumerate(stated)
    ]
    silent = ListedSite(name="silent", statement=None, seen=None)
    seen = replace(view(), sites=(*sites, silent))
    assert draft_of({"columns": ["age"]}, seen).given["records"].get("person_column") == person
    own = draft_of({"columns": ["age"], "person_column": "own"}, seen)
    assert own.given["records"]["person_column"] == "own"


@pytest.fixture
def clinical_study(monkeypatch: Patch) -> FederatedStudy:
    monkeypatch.setattr("eigenveil_client.analyst.federation.find_dictionary", lambda *_: DICTIONARY)
    return federated(columns=list(NAMES), scaling="bounds")


def test_a_misleading_study_warns_in_python_before_it_is_submitted(clinical_study: FederatedStudy) -> None:
    plan = clinical_study.plan()
    (warning,) = clinical(scaling="bounds").warnings(DICTIONARY.spreads())
    assert warning in plan.warnings
    assert warning in repr(plan)
    assert escape(warning) in plan._repr_html_()
    plan.explanation["warnings"].append("another")
    assert repr(plan).splitlines()[-1] == "another"
    assert plan._repr_html_().endswith("<p>another</p></div>")


def test_a_study_that_states_no_scaling_shows_and_sends_the_default(monkeypatch: Patch) -> None:
    monkeypatch.setattr("eigenveil_client.analyst.federation.find_dictionary", lambda *_: DICTIONARY)
    study = federated(columns=list(NAMES))
    assert study.study.scaling is eigenveil.Study(**_fields(clinical())).scaling
    assert 'scaling = "standard"' in study.resolved.text
    assert "standard: a column counts in its standard deviation" in repr(study.plan())
    assert study.plan().warnings == ()
    assert draft_from_toml(study.resolved.text).study() == study.study


def _fields(study: Study) -> dict[str, Any]:
    names = ("name", "columns", "epsilon", "delta", "components", "federation")
    return {name: getattr(study, name) for name in names}


def test_dir_lists_public_names_alone(clinical_study: FederatedStudy) -> None:
    assert set(dir(eigenveil.plot)) == set(eigenveil.plot.__all__)
    assert set(dir(clinical_study)) == {"toml", "study", "plan", "explain", "submit"}
    assert set(dir(clinical_study.plan())) == {
        "study",
        "prediction",
        "explanation",
        "cost",
        "sites",
        "warnings",
    }
    for name in ("wait", "status", "result", "cancel", "events"):
        assert name in dir(a_run())
    for names in (dir(a_run()), dir(ConnectedFederation.__new__(ConnectedFederation))):
        assert not {"rows", "title", "note", "messages", "call", "each"} & set(names)
        assert not [name for name in names if name.startswith("_")]


def test_a_time_that_is_none_is_refused() -> None:
    with refused(Code.PROTOCOL, "an invalid time"):
        awaited_line(event(1, sites={"a": "waiting"}, round_ends_unix_ms=2**62))
