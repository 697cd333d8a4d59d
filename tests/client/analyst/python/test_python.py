"""Studies, budgets and errors as Python shows them; a study is shown before it is signed. [R31]"""

from __future__ import annotations

import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest

from eigenveil import Column, PeerError, PublicNorm, RequestError
from eigenveil.accounting.zcdp import Cost
from eigenveil.dictionary.directory import SiteStatement
from eigenveil.dictionary.study_files import complete
from eigenveil.errors import Code
from eigenveil.planning.choose import make_plan
from eigenveil.reporting.presentation import summary_text
from eigenveil.study.study import Study
from eigenveil.study.toml import draft_from_toml, parse_study, study_to_toml
from eigenveil_client.analyst.coordinator import _result_of
from eigenveil_client.analyst.federation import FederationView, ListedSite, shipped
from eigenveil_client.analyst.python.connect import DisplayTable
from eigenveil_client.analyst.python.plan import budget_from
from eigenveil_client.analyst.python.study import FederatedStudy, draft_of
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.commands import eigenveil
from tests.support import Capture, Patch, a_study

NASTY = "<script>[bold]\x1b[31m"


def listed(**changes: float) -> pb.ListStudiesResponse:
    result = {"delta": 1e-6, "micro_rho": 1000, "committed_micro_rho": 100, "atto_delta": 50, "gaussian": 1}
    row = pb.StudyRow(name="latest", micro_rho=300)
    return pb.ListStudiesResponse(studies=[row], budget=pb.FederationBudget(**(result | changes)))  # type: ignore[arg-type]


def test_nothing_that_others_wrote_is_obeyed() -> None:
    rows = [{"name": NASTY, "seen": datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "asks": True, "none": None}]
    table = DisplayTable(NASTY, rows, lambda row: row)
    for text in (repr(table), summary_text(NASTY, [(NASTY, NASTY)], note=NASTY)):
        assert "\x1b" not in text
    assert "[bold]" in repr(table)
    assert "<script>" not in table._repr_html_()
    assert "2026-01-02 03:04 UTC" in repr(table)
    assert list(table.to_dataframe()["name"]) == [NASTY]
    assert (len(table), table[0], table[:1]) == (1, rows[0], (rows[0],))


def test_what_is_left_is_what_is_not_committed() -> None:
    budget = budget_from(listed())
    assert budget.left == Cost(micro_rho=900, atto_delta=50)
    assert budget.studies_left(Cost(micro_rho=300)) == 3
    assert "studies like latest" in repr(budget)
    assert 0 < budget.epsilon_left < budget.epsilon
    assert budget_from(listed(committed_micro_rho=2000)).epsilon_left == 0


@pytest.mark.parametrize(("own", "left"), [(0, 3), (20, 2), (51, 0)])
def test_studies_left_follow_the_scarcer_part_of_the_cost(own: int, left: int) -> None:
    message = listed()
    message.studies[0].atto_delta = own
    assert budget_from(message).rows()[-1] == ("studies like latest left", str(left))


@pytest.mark.parametrize("changes", [{"delta": 0.0}, {"delta": float("nan")}, {"micro_rho": 2**63}])
def test_a_budget_that_cannot_be_is_refused(changes: dict[str, float]) -> None:
    with pytest.raises(PeerError):
        budget_from(listed(**changes))
    with pytest.raises(PeerError, match="no valid budget"):
        budget_from(pb.ListStudiesResponse())


def site(name: str, *offered: str) -> ListedSite:
    stated = SiteStatement(
        columns=offered, needs_approval=False, max_missing=1, max_unreadable=1, max_out_of_bounds=1
    )
    return ListedSite(name=name, statement=stated if offered else None, seen=None)


VIEW = FederationView(
    name="here", sites=(site("north", "age", "bmi"), site("silent"), site("south", "age")),
    dictionary=shipped(), approval_seconds=1e6, start_seconds=0,
)  # fmt: skip


def made(**choices: Any) -> Study:
    return complete(draft_of(choices, VIEW), shipped()).study()


def test_a_new_study_file_names_the_sites_left_out(
    tmp_path: Path, monkeypatch: Patch, capfd: Capture
) -> None:
    monkeypatch.setattr("eigenveil_client.analyst.catalogue.call_coordinator", lambda profile, ask: VIEW)
    words = ["study", "new", "--columns", "age,bmi", "--out", str(tmp_path / "one.toml")]
    assert eigenveil(words) == 0
    shown = " ".join(capfd.readouterr().err.split())
    assert "warning: these sites are left out, as they do not offer a column: south: no column 'bmi'" in shown


def test_sites_that_lack_a_column_are_not_invited() -> None:
    assert made(columns=["age", "bmi"]).federation.sites == ("north", "silent")
    assert made(columns=["age"], components=1).federation.sites == ("north", "silent", "south")
    assert made(columns=["age", "bmi"], sites=["south"]).federation.sites == ("south",)


def test_numbers_and_names_may_come_from_numpy_and_pandas() -> None:
    names = pandas.DataFrame({"age": [1], "bmi": [2]}).columns
    study = made(columns=names, epsilon=np.float64(0.5), components=np.int64(1), radius=PublicNorm(norm=1.0))
    assert (study.epsilon, study.components, study.radius) == (0.5, 1, PublicNorm(norm=1.0))


def test_complete_columns_need_no_dictionary() -> None:
    own = [Column(name=name, unit="u", lower=0, upper=1) for name in ("x", "y")]
    draft = draft_of({"columns": own, "sites": ["north"]}, VIEW)
    assert draft.study() == parse_study(draft.text)
    assert draft.study().columns == tuple(own)


@pytest.mark.parametrize(("choices", "message"), [
    ({"columns": []}, "must be a list"),
    ({"columns": "age"}, "must be a list"),
    ({"columns": ["age"], "quorom": 1}, "did you mean 'quorum'"),
    ({"columns": ["age"], "bounds": {"bmi": (0, 1)}}, "not in this study"),
    ({"columns": ["age"], "bounds": {"age": (0, 1, 2)}}, "must be a pair"),
    ({"columns": ["age"], "bounds": {"age": "01"}}, "bounds"),
    ({"columns": ["age"], "quorum": object()}, "not a valid value in a study"),
    ({"columns": ["creatinine", "age"]}, None),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(choices: dict[str, Any], message: str | None) -> None:
    if message is None:  # the silent site may have it
        assert made(**choices).federation.sites == ("silent",)
        return
    with pytest.raises(RequestError, match=message):
        made(**choices, components=1)


STUDY = a_study()
WHOLE = replace(draft_from_toml(study_to_toml(STUDY)), source="heart, version 7")
DAY = 86_400


class Client:
    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    async def propose(self, text: str, submission: str, *, days: int, dictionary: str) -> Any:
        self.calls.append(("proposed", dictionary))
        return SimpleNamespace(summary="You sign it")

    async def sign(self, proposal: Any) -> Any:
        self.calls.append(("signed", proposal.summary))
        return make_plan(STUDY, federation="test", submission="s", analyst="ada"), []


class BlockingCoordinator:
    def __init__(self, client: Client) -> None:
        self.client = client

    def call(self, work: Any) -> Any:
        with pytest.raises(StopIteration) as done:
            work(self.client).send(None)
        return done.value.value


def no(summary: str) -> None:
    raise PermissionError(summary)


@pytest.mark.parametrize(("days", "warned"), [(7, False), (8, True)])
def test_a_study_is_shown_with_its_warnings_before_it_is_signed_and_a_refusal_leaves_it_unsigned(
    days: int, warned: bool
) -> None:
    client: Any = Client()
    coordinator: Any = BlockingCoordinator(client)
    study = FederatedStudy(
        coordinator=coordinator, toml=WHOLE.text, resolved=WHOLE, study=STUDY,
        approval={"sites": ["anna"], "approval_seconds": days * DAY},
    )  # fmt: skip
    with pytest.raises(PermissionError, match="You sign it"):
        study.submit(again=True, submission="s", notify=no)
    assert client.calls == [("proposed", "heart, version 7")]
    shown: list[str] = []
    study.submit(again=True, submission="s", notify=shown.append)
    assert client.calls[1:] == [("proposed", "heart, version 7"), ("signed", "You sign it")]
    first, *warnings = shown[0].splitlines()
    assert first == "You sign it"
    assert [one for one in warnings if not one.startswith("  warning: ")] == []
    assert ("people at anna have 8 days" in shown[0]) is warned


def unreachable(deep: int) -> None:
    if deep:
        unreachable(deep - 1)
    try:
        raise OSError("connection refused")
    except OSError as problem:
        raise PeerError(Code.UNREACHABLE, "nobody answers") from problem


def bug(deep: int) -> None:
    raise ZeroDivisionError(deep)


def traceback_of(future: Future[None], kind: type[Exception]) -> str:
    with pytest.raises(kind) as raised:
        _result_of(future)
    return "".join(traceback.format_exception(raised.value))


def test_an_error_of_ours_shows_no_frame_of_the_thread_and_a_bug_all() -> None:
    with ThreadPoolExecutor(1) as threads:
        ours = traceback_of(threads.submit(unreachable, 9), PeerError)
        assert "nobody answers" in ours
        assert "unreachable(deep" not in ours
        assert "connection refused" not in ours
        assert "in bug" in traceback_of(threads.submit(bug, 1), ZeroDivisionError)
