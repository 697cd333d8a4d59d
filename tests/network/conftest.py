"""A site whose coordinator is played by the test."""

from pathlib import Path

import pytest

from tests.client.site.support import Stage, a_stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Its files, which nobody else can change."""
    tmp_path.chmod(0o700)
    made = a_stage(tmp_path)
    made.records.chmod(0o640)
    return made
