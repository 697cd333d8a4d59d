"""Controls of the checks of upgrades: a fault is planted, and the check must find it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eigenveil_common.storage.database import Connection, VersionedDatabase
from eigenveil_server.rpc.sites import SiteDirectory
from eigenveil_server.storage import database as coordinator_store
from tests.torture.crashes import upgrades
from tests.torture.programs import rehearsal

(OLDEST, STEP), *LATER = coordinator_store.MIGRATIONS


def upgrade_in_parts(self: VersionedDatabase, check: Callable[[Connection], None]) -> None:
    """Make every step in a transaction of its own."""
    for reached, statements in self.pending:
        with self.transaction() as change:
            change.execute(statements)
            self.set_version(change, reached)


@pytest.mark.parametrize(
    ("owner", "name", "fault", "found"),
    [
        (VersionedDatabase, "upgrade", upgrade_in_parts, "a part of the upgrade is there"),
        (coordinator_store, "MIGRATIONS", ((OLDEST, STEP.replace("''", "'-'")), *LATER), "than its default"),
        (coordinator_store, "MIGRATIONS", ((OLDEST, STEP.replace("NOT NULL ", "")), *LATER), "tables differ"),
        (coordinator_store, "MIGRATIONS", ((OLDEST, f"{STEP}; DELETE FROM audit"), *LATER), "rows differ"),
        (coordinator_store, "VERSION", OLDEST - 2, "needs no upgrade"),
    ],
)
def test_upgrades_find_a_faulty_upgrade(
    owner: object, name: str, fault: object, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, fault)
    faults, _ = upgrades.judge(next(upgrades.kinds()), 1)
    assert any(found in one for one in faults), faults


def test_upgrades_find_that_there_is_no_earlier_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrades, "HERE", tmp_path)
    assert upgrades.run(tmp_path, 0.0)[0] == ["there is no federation of an earlier version"]


@pytest.mark.slow
def test_the_rehearsal_finds_a_coordinator_that_forgets_the_versions_of_its_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forget(*_: object) -> None:
        return None

    monkeypatch.setattr(SiteDirectory, "note", forget)
    faults, _ = rehearsal.run(tmp_path, 0.0)
    assert any("a site was sent a plan" in fault for fault in faults), faults
