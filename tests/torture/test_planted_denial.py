"""Control of the check of denials: a coordinator without its limit of connections, and the check finds it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.torture.front import besieged, denial


def attack_unhindered(*words: Any) -> float:
    """An attack at the usual priority: at the lowest it may hardly run beside other tests."""
    besieged.LOWEST = 0  # in its own process
    return besieged.attack(*words)


def burn_unhindered(*words: Any) -> None:
    vars(denial).update(LOWEST=0)
    denial.burn(*words)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_denial_finds_a_coordinator_that_counts_no_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(denial, "ATTACKS", {"rapid resets": denial.ATTACKS["rapid resets"]})
    monkeypatch.setattr(
        denial,
        "besieged",
        partial(besieged.besieged, command=("tests.torture.front.unlimited", "connections")),
    )
    monkeypatch.setattr(denial, "attack", attack_unhindered)
    monkeypatch.setattr(denial, "burn", burn_unhindered)
    found, _ = await denial.run(tmp_path, 0.25)
    assert any(one.startswith("rapid resets: ") for one in found), found
