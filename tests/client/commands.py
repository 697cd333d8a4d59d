"""Runs `eigenveil` in this process, as its entry point does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from eigenveil_client.cli import main
from eigenveil_client.demo.processes import command_line
from tests.support import Capture


def eigenveil(arguments: Sequence[str]) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["eigenveil", *arguments])
        return main()


def ran(capfd: Capture, *arguments: object) -> tuple[int, Any]:
    code = eigenveil([*map(str, arguments), "--json"])
    return code, json.loads(capfd.readouterr().out.strip().splitlines()[-1])


@contextmanager
def spawned(*arguments: str, **settings: Any) -> Iterator[subprocess.Popen[str]]:
    """`eigenveil` as a process of its own, which ends with the block, whatever fails there."""
    with subprocess.Popen([*command_line("eigenveil"), *arguments], text=True, **settings) as process:
        try:
            yield process
        finally:
            process.kill()
