"""Fixtures of the site's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.site.support import Stage, a_stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A site that is set up and enrolled."""
    return a_stage(tmp_path)
