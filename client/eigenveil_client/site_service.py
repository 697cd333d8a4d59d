"""What the site's commands do: check a set-up, and serve it."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import click

from eigenveil.errors import TABLE, Code, EigenveilError, InternalError, RequestError
from eigenveil.identity import Role
from eigenveil.plan import Plan
from eigenveil_client import records
from eigenveil_client.identity_store import StoredIdentity, load_identity
from eigenveil_client.site_config import SiteConfig
from eigenveil_client.site_daemon import SiteDaemon
from eigenveil_client.site_store import SiteStore
from eigenveil_client.site_worker import SiteWorker
from eigenveil_client.tables import open_table
from eigenveil_common import log


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was checked. `code` is empty when all is well; a `note` is no failure."""

    about: str
    ok: bool
    text: str
    code: str = ""

    @property
    def exit_code(self) -> int:
        """The exit code of a failure."""
        return TABLE[Code(self.code)].exit_code if self.code else 0

    def as_dict(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)

    def line(self) -> str:
        """One line for a person."""
        return f"{'ok  ' if self.ok else 'FAIL'} {self.about}: {self.text}"


def check(config: SiteConfig, plan: Plan | None) -> list[Finding]:
    """Everything that can be checked without the coordinator."""
    findings = [_finding("identity", partial(_check_identity, config))]
    findings.append(_finding("state", partial(_check_state, config)))
    findings.append(_finding("records", partial(_check_file, config)))
    if plan is not None:
        findings += [
            Finding(
                about=f"policy {verdict.rule}",
                ok=verdict.passed,
                text=verdict.text,
                code="" if verdict.passed else Code.POLICY.value,
            )
            for verdict in config.policy.verdicts(plan)
        ]
        findings.append(_finding("study", partial(_check_study, config, plan)))
    return findings


def _finding(about: str, test: partial[str]) -> Finding:
    try:
        return Finding(about=about, ok=True, text=test())
    except EigenveilError as problem:
        return Finding(about=about, ok=False, text=str(problem), code=problem.code.value)


def _check_identity(config: SiteConfig) -> str:
    stored = check_role(load_identity(config.identity), config.name)
    return f"{stored.identity.uri}, certificate until {stored.expires:%Y-%m-%d %H:%M} UTC"


def _check_state(config: SiteConfig) -> str:
    with opened(config) as store:
        store.egress.rows()
        return f"both ledgers are whole: {store.ledger.ledger.size} entries"


def _check_file(config: SiteConfig) -> str:
    table = open_table(config.records)
    return f"{config.records} has {len(table.headers)} columns: {', '.join(table.headers)}"


def _check_study(config: SiteConfig, plan: Plan) -> str:
    rows = records.load(config.records, plan.study)
    config.policy.require_enough(len(rows), plan)
    constant = records.constant_columns(rows, plan.study)
    note = f"; warning: all records agree in {', '.join(constant)}" if constant else ""
    return f"{len(rows)} usable records{note} (this stays here)"


def check_role(stored: StoredIdentity, name: str) -> StoredIdentity:
    """Insist that an identity is this site's.

    Raises:
        RequestError: code `bad-config`.
    """
    if (stored.identity.role, stored.identity.name) != (Role.SITE, name):
        raise RequestError(
            Code.BAD_CONFIG,
            f"the identity is {stored.identity.uri}, but site.toml names the site {name!r}; mend one",
        )
    return stored


@contextmanager
def opened(config: SiteConfig) -> Iterator[SiteStore]:
    """The site's store, closed at the end.

    Raises:
        InternalError: code `storage`.
    """
    store = SiteStore(config.state, config.policy.budget)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Hold the lock that two daemons on one state cannot both hold; the system frees it at exit.

    Raises:
        RequestError: code `conflict`, another process serves this state.
    """
    try:
        handle = os.open(state.with_name("serve.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as problem:
        raise InternalError(Code.STORAGE, f"cannot write beside {state}: {problem}") from problem
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RequestError(Code.CONFLICT, f"another process serves {state.parent}; stop it first") from None
    else:
        yield
    finally:
        os.close(handle)


def serve(config: SiteConfig) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        EigenveilError: it cannot start, or the disk failed.
    """
    log.to_stderr()

    def identity() -> StoredIdentity:
        return check_role(load_identity(config.identity), config.name)

    first = identity()
    open_table(config.records)  # a file that is not there should stop the start, not the first study
    with alone(config.state), opened(config) as store:
        worker = SiteWorker(first, config.policy, store, partial(records.load, config.records))
        about = {
            "event": "serving",
            "site": config.name,
            "federation": first.identity.federation,
            "coordinator": first.coordinator,
        }
        click.echo(json.dumps(about, sort_keys=True))
        log.event("started", site=config.name)
        asyncio.run(_until_stopped(SiteDaemon(worker, identity)))
        log.event("stopped", site=config.name)


async def _until_stopped(daemon: SiteDaemon) -> None:
    task = asyncio.ensure_future(daemon.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with suppress(asyncio.CancelledError):
        await task
