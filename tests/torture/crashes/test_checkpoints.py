"""A coordinator put back to an older state, in real processes, and that the check sees one that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.crashes import checkpoints
from tests.torture.crashes.forked import COORDINATOR, SITES, Federation


@pytest.mark.slow
async def test_one_that_goes_on_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: sites that have forgotten what they saw."""
    monkeypatch.setattr(checkpoints, "END_SECONDS", 4.0)

    here = Federation(tmp_path, renews=False)
    try:
        await here.set_up()
        source = await checkpoints.back_up(here, "backup")
        await checkpoints.put_back_by_hand(here, source)
        for name in SITES:
            here.start(name)
        with pytest.raises(TimeoutError):
            await checkpoints.refuses(here)
        assert here.processes[COORDINATOR].is_alive()
    finally:
        here.stop()
