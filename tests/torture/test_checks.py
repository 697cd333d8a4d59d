"""The checks themselves at a small scale."""

from __future__ import annotations

import pytest

from tests.torture.checks import check, lacking

SMALL = {
    "calls": 0.1, "certificates": 0.1, "charges": 0.1, "checkpoints": 0.1, "damaged_records": 0.01,
    "disk_errors": 0.1, "exact": 1.0, "exhaustion": 0.05, "federation": 0.25, "http2": 0.0075,
    "kills": 0.1, "long_run": 0.03, "long_run_postgresql": 0.05,
    "malicious": 0.1, "markers": 0.1, "messages": 0.02, "networks": 0.1, "power": 0.05,
    "programs": 0.04, "rehearsal": 0.0, "sets": 0.05, "slow_loading": 0.0,
    "upgrades": 0.3, "walk": 0.02,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "scale"), SMALL.items())
def test_check_passes_at_a_small_scale(name: str, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Latency is measured by the torture, not on a machine that is busy."""
    if missing := lacking([name]):
        pytest.skip(missing[0])
    for limit in ("front.http2.ANSWER_SECONDS", "front.exhaustion.ANSWER_SECONDS", "front.besieged.P99"):
        monkeypatch.setattr(f"tests.torture.{limit}", float("inf"))
    monkeypatch.setattr("tests.torture.masked.federation.DEADLINE", 20.0)
    line, passed, _ = check(name, scale)
    assert passed, line
