"""What the site's commands do: check a set-up, and serve it."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import click

from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import TABLE, Code, EigenveilError, RequestError
from eigenveil.identity import Role
from eigenveil.protocol.plan import Plan
from eigenveil.study.study import Study
from eigenveil_client.connection.identity import StoredIdentity, load_identity
from eigenveil_client.records import records
from eigenveil_client.records.records import Records, Unreadable
from eigenveil_client.records.tables import open_table
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.daemon.daemon import SiteDaemon
from eigenveil_client.site.daemon.metrics import keep_written
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.state.rollback_guard import RollbackGuard
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common import log
from eigenveil_common.files import check_owner
from eigenveil_common.locks import try_lock
from eigenveil_common.process import forbid_core_dumps

ENDS_SOON_DAYS = 30
LEFT_OUT = "lines that are left out"
MISSING = "cells that cannot be read and count as missing"
LINES = "(whole lines)"  # no column's name, where columns are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was checked. `code` is empty unless it failed; a `warning` is no failure."""

    about: str
    ok: bool = True
    warning: bool = False
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
        level = "FAIL" if not self.ok else "warn" if self.warning else "ok  "
        return f"{level} {self.about}: {self.text}"


def check(config: SiteConfig, plan: Plan | None) -> list[Finding]:
    """Everything that can be checked without the coordinator."""
    findings = [_finding("identity", partial(_check_identity, config))]
    findings.append(_finding("state", partial(_check_state, config)))
    now = clock(config)
    findings.append(approval(config, now))
    findings.append(_finding("records", partial(_check_file, config)))
    if plan is not None:
        findings += [
            Finding(
                about=f"policy {verdict.rule}",
                ok=verdict.passed,
                text=verdict.text,
                code="" if verdict.passed else Code.POLICY.value,
            )
            for verdict in config.policy.verdicts(plan, now)
        ]
        unreadable: list[Unreadable] = []
        study = _finding("study", partial(_check_study, config, plan, unreadable))
        findings += [*_cells(config.records, unreadable), study]
    return findings


def approval(config: SiteConfig, now: int) -> Finding:
    """Whether the approval still holds at the Unix time `now`, and whether it soon ends."""
    verdict, days = config.policy.about_time(now), config.policy.days_left(now)
    if not verdict.passed:
        text = f"{verdict.text} and nothing is answered: renew it, then set approval_ends in site.toml"
        return Finding(about="approval", ok=False, text=text, code=Code.POLICY.value)
    if days < ENDS_SOON_DAYS:
        text = f"{verdict.text}, in {days:.1f} days: renew it in time"
        return Finding(about="approval", warning=True, text=text)
    return Finding(about="approval", text=verdict.text)


def clock(config: SiteConfig) -> int:
    """The Unix time that the daemon would go by, as far as its state can be read."""
    with suppress(EigenveilError):  # what is wrong with the state is a finding of its own
        if begun(config):
            with opened(config) as store:
                return store.now()
    return int(time.time())


def begun(config: SiteConfig) -> bool:
    """Whether this site has a state, or had one: looking must not make a new one."""
    return config.state.exists() or RollbackGuard(config.identity).seen() is not None


def _cells(path: Path, unreadable: Sequence[Unreadable]) -> list[Finding]:
    """What the daemon takes as missing or leaves out, a finding for each column and one for lines."""
    cells = Counter[str | None]()
    for one in unreadable:
        cells[one.column] += one.cells
    first = {one.column: one for one in sorted(unreadable, key=lambda one: -one.first)}
    table = open_table(path)
    return [
        Finding(
            about="lines" if name is None else f"column {name!r}",
            warning=True,
            text=f"{LEFT_OUT if name is None else MISSING}: {cells[name]}, "
            f"the first in {table.place(one.first, whole=name is not None)}: {one.what}",
        )
        for name, one in sorted(first.items(), key=lambda found: found[0] or "")
    ]


def _finding(about: str, test: partial[str]) -> Finding:
    try:
        return Finding(about=about, text=test())
    except EigenveilError as problem:
        return Finding(about=about, ok=False, text=str(problem), code=problem.code.value)


def _check_identity(config: SiteConfig) -> str:
    stored = check_role(load_identity(config.identity), config.name)
    return f"{stored.identity.uri}, certificate until {stored.expires:%Y-%m-%d %H:%M} UTC"


def _check_state(config: SiteConfig) -> str:
    if not begun(config):
        return f"{config.state} is not there yet; it is made when the daemon first starts"
    with opened(config) as store:
        store.egress.rows()
        return f"both ledgers are whole: {store.ledger.ledger.size} entries"


def _check_file(config: SiteConfig) -> str:
    table = open_table(config.records)
    if config.policy.person_column:
        records.find_column(table.headers, config.policy.person_column)
    return f"{config.records} has {len(table.headers)} columns: {', '.join(table.headers)}"


def _check_study(config: SiteConfig, plan: Plan, unreadable: list[Unreadable]) -> str:
    found = records.read(config.records, plan.study, unreadable=unreadable.append)
    config.policy.require_enough(found.persons)
    constant = records.constant_columns(found.rows, plan.study)
    note = f"; warning: all records agree in {', '.join(constant)}" if constant else ""
    return f"{len(found.rows)} usable records of {found.persons}{note} (this stays here)"


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
        RequestError: code `bad-config`, root in another user's folder.
        InternalError: code `storage`, also for a ledger that is gone or was put back.
    """
    check_owner(config.state.parent)
    witness = RollbackGuard(config.identity)
    seen = witness.seen()
    if seen is not None and not config.state.exists():
        raise seen.lost(config.state)
    with closing(SiteStore(config.state, config.policy.budget, witness)) as store:
        if seen is not None and not seen.is_in(store.ledger):
            raise seen.lost(config.state)
        store.check_whole()
        yield store


def accept_loss(config: SiteConfig) -> Cost:
    """Go on with a ledger that lost rows, charging what they had spent or set aside; the charge.

    Raises:
        RequestError: code `conflict`, nothing is lost or the daemon is serving; the budget does not hold it.
        InternalError: code `storage`.
    """
    check_owner(config.state.parent)
    witness = RollbackGuard(config.identity)
    with alone(config.state), closing(SiteStore(config.state, config.policy.budget, witness)) as store:
        return store.accept_loss()


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Hold the lock that two daemons on one state cannot both hold; the system frees it at exit.

    Raises:
        RequestError: code `conflict`, another process serves this state.
    """
    lock = try_lock(state.with_name("serve.lock"))
    if lock is None:
        raise RequestError(Code.CONFLICT, f"another process serves {state.parent}; stop it first")
    with lock:
        yield


class Reader:
    """Reads a site's records for its daemon: a cell that is no number is a missing value of its record, and a
    line with too many or too few cells is no record.

    One such cell must not show itself to the coordinator as a refusal; the operator is warned of its
    column, once, and finds the line with `eigenveil-site check`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._warned: set[str] = set()

    def __call__(self, study: Study) -> Records:
        """The records of a study. Raises as `records.read`."""
        found: set[str] = set()
        read = records.read(self._path, study, unreadable=lambda cells: found.add(cells.column or LINES))
        if found - self._warned:
            log.event("cells-unreadable", logging.WARNING, columns=", ".join(sorted(found - self._warned)))
            self._warned |= found
        return read


def serve(config: SiteConfig) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        EigenveilError: it cannot start, or the disk failed.
    """
    forbid_core_dumps()
    log.to_stderr(config.log_format)

    def identity() -> StoredIdentity:
        return replace(check_role(load_identity(config.identity), config.name), proxy=config.proxy_rule)

    first = identity()
    open_table(config.records)  # a file that is not there should stop the start, not the first study
    with alone(config.state), opened(config) as store:
        worker = SiteWorker(first, config.policy, store, Reader(config.records))
        about = {
            "event": "serving",
            "site": config.name,
            "federation": first.identity.federation,
            "coordinator": first.coordinator,
        }
        click.echo(json.dumps(about, sort_keys=True))
        log.event("started", site=config.name)
        _tell_of_end(config, store.now())
        asyncio.run(_until_stopped(SiteDaemon(worker, identity), config.metrics_file, store))
        log.event("stopped", site=config.name)


def _tell_of_end(config: SiteConfig, now: int) -> None:
    end = approval(config, now)
    if end.warning or not end.ok:
        name = "approval-ends-soon" if end.ok else "approval-ended"
        log.event(name, logging.WARNING, detail=end.text)


async def _until_stopped(daemon: SiteDaemon, metrics: Path | None, store: SiteStore) -> None:
    task = asyncio.ensure_future(daemon.run())
    if metrics is not None:
        written = asyncio.ensure_future(keep_written(metrics, daemon.contact, lambda: store.ledger.ledger))
        task.add_done_callback(lambda _: written.cancel())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with suppress(asyncio.CancelledError):
        await task
