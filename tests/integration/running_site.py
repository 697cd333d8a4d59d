"""A real site daemon against a real coordinator, both in this process, and what the daemon logs."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from eigenveil.dictionary.site_rules import ANY
from eigenveil.identity import JOIN_FORMAT, Role
from eigenveil.signatures import formatted
from eigenveil_client.analyst.profile import SigningKey
from eigenveil_client.connection.identity import StoredIdentity, enrol, load_identity
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site.config import SiteConfig, statement_of
from eigenveil_client.site.daemon.service import SiteDaemon
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.engine.engine import make_engine
from eigenveil_client.site.policy import Approval, Policy
from eigenveil_client.site.state.rollback import RollbackGuard
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.files import write_secret
from tests.client.site.support import write_records
from tests.server.rig import Rig

SITE = "anna"
DAY = 24 * 3600.0
COLUMNS = ("c0", "c1", "c2", "c3")


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())

    def count(self, name: str) -> int:
        return sum(line.startswith(name) for line in self.seen)


@asynccontextmanager
async def listening() -> AsyncIterator[Lines]:
    lines, logger = Lines(), logging.getLogger("eigenveil")
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)


def invited(
    rig: Rig, path: Path, name: str = SITE, role: Role = Role.SITE, *, authorities: str = "", **options: bool
) -> Path:
    """A join file of now, or with these authorities, for this coordinator."""
    join = {
        "token": rig.token(role, name, **options),
        "role": role.value,
        "name": name,
        "federation": rig.config.federation,
        "coordinator": f"127.0.0.1:{rig.ports.port}",
        "enrol": f"127.0.0.1:{rig.ports.enrol_port}",
        "authorities": authorities or rig.list_json,
    }
    write_secret(path, json.dumps(formatted(JOIN_FORMAT, join)).encode())
    return path


async def enrolled(
    rig: Rig,
    folder: Path,
    name: str = SITE,
    role: Role = Role.SITE,
    *,
    authorities: str = "",
    **options: bool,
) -> StoredIdentity:
    """An identity in `folder` that can reach this coordinator, by a join file as `invited` makes it."""
    path = invited(rig, folder.with_suffix(".json"), name, role, authorities=authorities, **options)
    stored = await asyncio.to_thread(enrol, path, folder)
    if role is Role.ANALYST:
        SigningKey.make(folder)  # as the command does
    return stored


def config_of(identity: Path, **rules: Any) -> SiteConfig:
    """Configuration of the site whose identity is in this folder."""
    folder = identity.with_name(f"{identity.name}-site")
    return SiteConfig(
        name=load_identity(identity).identity.name, records=RecordsConfig(source=folder / "records.csv"),
        identity=identity, state=folder / "state.db",
        policy=replace(Policy(minimum_records=5, analysts=(ANY,)), **rules),
    )  # fmt: skip


@asynccontextmanager
async def running_site(
    identity: Path, offers: tuple[str, ...] = (), approval: Approval = Approval.AUTO, **rules: Any
) -> AsyncIterator[SiteDaemon]:
    """The daemon of the site whose identity is in this folder."""
    folder = identity.with_name(f"{identity.name}-site")
    folder.mkdir(exist_ok=True)
    write_records(folder / "records.csv", columns=COLUMNS)
    config = config_of(identity, approval=approval, **rules)
    config = replace(config, offers=offers)
    store = SiteStore(config.state, config.policy.budget, RollbackGuard(config.identity))
    worker = SiteWorker(load_identity(identity), config.policy, store, make_engine(config))
    daemon = SiteDaemon(worker, lambda: load_identity(identity), statement_of(config))
    task = asyncio.create_task(daemon.run())
    try:
        yield daemon
        assert not task.done(), "the daemon ended by itself"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        store.close()
