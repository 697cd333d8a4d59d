"""The whole check, at a hundredth of its size: one of each kind, and some."""

from __future__ import annotations

import pytest

from tests.torture.records.damaged_records import run


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_damaged_files_of_every_kind_end_in_one_line() -> None:
    line = run(0.01)
    assert line.passed, line.detail
