"""[R1] Every call by every role, and that the check sees a table that is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest import mock

import pytest

from eigenveil.identity import Role
from eigenveil_server.rpc import interceptor
from tests.torture.peers.calls import CERTIFIED, DENIED, examine, methods, verdict


async def test_a_gate_that_lets_in_too_many_is_found(tmp_path: Path) -> None:
    open_to_all = {name: frozenset(Role) for name in interceptor.ROLES}
    with mock.patch.object(interceptor, "ROLES", open_to_all):
        report = await examine(tmp_path / "open")
    assert report.cells == (len(CERTIFIED) + len(DENIED) + 2) * len(methods())
    assert "SubmitStudy by site" in " ".join(report.faults)


@pytest.mark.slow
def test_a_gate_that_lets_in_too_few_is_found(tmp_path: Path) -> None:
    one_lost = {name: roles for name, roles in interceptor.ROLES.items() if name != "ListStudies"}
    with mock.patch.object(interceptor, "ROLES", one_lost):
        found = verdict(asyncio.run(examine(tmp_path / "closed")))
    assert not found.passed
    assert "ListStudies by operator: identity" in found.detail
