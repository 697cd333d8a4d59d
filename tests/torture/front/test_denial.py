"""The judge of denials finds each planted fault, and a coordinator without places is found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.front.denial import Honest, deny, faults

CALM = Honest(waits=[0.01] * 200, studies=[1.0, 1.1, 1.4])


def test_what_honest_callers_saw_decides() -> None:
    assert faults("x", CALM, undisturbed=1.0) == []
    assert "1 of 200 honest calls lost" in faults("x", Honest(CALM.waits, 1, CALM.studies), 1.0)[0]
    assert "p99" in faults("x", Honest([*CALM.waits, 2.0, 2.0, 2.0], 0, CALM.studies), 1.0)[0]
    assert "undisturbed" in faults("x", Honest(CALM.waits, 0, [1.0, 1.6, 1.7]), 1.0)[0]
    assert "too long" in faults("x", Honest(CALM.waits, 0, [1.0, 1.0]), 1.0)[0]
    assert len(faults("x", Honest(), 1.0)) == 2, "nobody asked, and no study ended"


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_coordinator_without_places_is_found_out(tmp_path: Path) -> None:
    line = await deny(tmp_path, ("rapid resets",), 0.25, ("tests.torture.front.unlimited", "places"))
    assert not line.passed, str(line)
