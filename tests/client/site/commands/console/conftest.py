"""Fixtures of the console's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.site.commands.console.rig import Rig, rigged


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return rigged(tmp_path)
