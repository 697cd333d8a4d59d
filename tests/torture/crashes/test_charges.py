"""[P8] A budget that many clients of two processes spend at once, in small."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.common.storage import cluster
from tests.torture.crashes.charges import run, spend


def test_a_budget_admits_what_it_admits(tmp_path: Path) -> None:
    assert spend("exact", tmp_path / "state.db", 10, 60) == (60, 60)


def test_a_decision_outside_the_transaction_is_found(tmp_path: Path) -> None:
    told, stored = spend("careless", tmp_path / "state.db", 20, 20)
    assert told == stored > 20


@pytest.mark.slow
def test_on_both_databases() -> None:
    if cluster.missing():
        pytest.skip(cluster.missing())
    line = run(0.1)
    assert line.passed, str(line)
