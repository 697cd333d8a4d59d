"""[P8] A budget that many clients of two processes spend at once, in small."""

from __future__ import annotations

from pathlib import Path

from tests.torture.crashes.charges import spend


def test_a_budget_admits_what_it_admits(tmp_path: Path) -> None:
    assert spend("exact", tmp_path / "state.db", 10, 60) == (60, 60)


def test_a_decision_outside_the_transaction_is_found(tmp_path: Path) -> None:
    result, stored = spend("careless", tmp_path / "state.db", 20, 20)
    assert result == stored > 20
