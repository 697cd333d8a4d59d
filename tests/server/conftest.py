"""A coordinator of a new federation, its analyst and its sites."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eigenveil.identity import Role
from tests.server.rig import Client, Rig, Sites, made, serving


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A coordinator that serves in this process, in folder `c`."""
    async with serving(made(tmp_path / "c")) as served:
        yield served


@pytest.fixture
async def ada(rig: Rig) -> Client:
    return await rig.client(Role.ANALYST, "ada")


@pytest.fixture
async def sites(rig: Rig) -> Sites:
    return await rig.sites()
