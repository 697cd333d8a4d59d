"""What fails a benchmark: a miss that is not on record, or one that became worse."""

from __future__ import annotations

import pytest

from benchmarks import verdict


@pytest.mark.parametrize(
    ("name", "value", "failed"),
    [
        ("on record", 1.0, False),
        ("on record", 1.5, False),
        ("on record", 2.3, False),
        ("on record", 2.31, True),
        ("another", 1.0, False),
        ("another", 1.01, True),
    ],
)
def test_a_miss_fails_unless_it_is_on_record_and_no_worse(
    name: str, value: float, failed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "KNOWN", {"on record": 2.0})
    word, fails = verdict.judge(name, value, 1.0)
    assert fails is failed
    assert (word == "ok") is (value <= 1.0)
