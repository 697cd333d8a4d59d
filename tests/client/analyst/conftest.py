"""The analyst's command, run by somebody without a profile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.commands import eigenveil
from tests.support import Capture, Patch

Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def run(capfd: Capture, monkeypatch: Patch, tmp_path: Path) -> Run:
    """`eigenveil WORDS --json` of somebody who is enrolled nowhere: the exit code and what was said."""
    monkeypatch.setenv("EIGENVEIL_PROFILE", str(tmp_path / "nobody"))

    def one(*words: object) -> tuple[int, Any]:
        code = eigenveil([*map(str, words), "--json"])
        return code, json.loads(capfd.readouterr().out.strip().splitlines()[-1])

    return one
