"""Processes whose disk fails, in small, and that the check sees one that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.crashes.disk_errors import Choice, faults
from tests.torture.crashes.vfs_faulty import Kind


@pytest.mark.slow
async def test_a_failing_disk_ends_the_process(tmp_path: Path) -> None:
    chosen = (("coordinator", Kind.SYNC, 20), ("coordinator", Kind.FULL, 60), ("site", Kind.WRITE, 40))
    assert await faults(tmp_path, [Choice(*choice) for choice in chosen]) == []
