"""A coordinator with a console."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.console.visits import Visits, visited


@pytest.fixture
async def visits(tmp_path: Path) -> AsyncIterator[Visits]:
    async with visited(tmp_path / "c") as served:
        yield served
