"""What is shown of a federation is text, whatever others wrote; a budget is as it was told, or refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eigenveil import PeerError
from eigenveil.accounting.zcdp import Cost
from eigenveil.reporting.presentation import summary_text
from eigenveil_client.analyst.python.connect import DisplayTable
from eigenveil_client.analyst.python.plan import budget_from
from eigenveil_proto.v1 import eigenveil_pb2 as pb

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
    assert list(table.to_pandas()["name"]) == [NASTY]
    assert (len(table), table[0], table[:1]) == (1, rows[0], (rows[0],))


def test_what_is_left_is_what_is_not_committed() -> None:
    budget = budget_from(listed())
    assert budget.left == Cost(micro_rho=900, atto_delta=50)
    assert budget.studies_left(Cost(micro_rho=300)) == 3
    assert "studies like latest" in repr(budget)
    assert 0 < budget.epsilon_left < budget.epsilon
    assert budget_from(listed(committed_micro_rho=2000)).epsilon_left == 0


@pytest.mark.parametrize(("own", "left"), [(0, 3), (20, 2), (51, 0)])
def test_a_study_is_as_many_as_either_part_of_its_price_allows(own: int, left: int) -> None:
    message = listed()
    message.studies[0].atto_delta = own
    assert budget_from(message).rows()[-1] == ("studies like latest left", str(left))


@pytest.mark.parametrize("changes", [{"delta": 0.0}, {"delta": float("nan")}, {"micro_rho": 2**63}])
def test_a_budget_that_cannot_be_is_refused(changes: dict[str, float]) -> None:
    with pytest.raises(PeerError):
        budget_from(listed(**changes))
    with pytest.raises(PeerError, match="no valid budget"):
        budget_from(pb.ListStudiesResponse())
