"""A site's daemon as a process: from its configuration to a signal."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click

from eigenveil.dictionary.rules import ANY
from eigenveil.dictionary.verdict import allowing
from eigenveil.errors import Code, RequestError
from eigenveil.identity import Role
from eigenveil_client.connection.identity import StoredIdentity, load_identity
from eigenveil_client.records.apart import reader
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.daemon.daemon import SiteDaemon
from eigenveil_client.site.daemon.metrics import keep_written
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.engine.opening import engine
from eigenveil_client.site.policy import Approval, Policy
from eigenveil_client.site.state.opening import alone, opened
from eigenveil_client.site.state.store import SiteStore
from eigenveil_client.site.statement import statement_of
from eigenveil_common import log
from eigenveil_common.doctor import Check, Level, fail, ok, warn
from eigenveil_common.notify.outbox import notifying
from eigenveil_common.process import forbid_core_dumps

ENDS_SOON_DAYS = 30  # of the ethics approval


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


def approval(policy: Policy, now: int) -> Check:
    """The state of the approval at the Unix time `now`."""
    verdict, days = policy.about_time(now), policy.days_left(now)
    if not verdict.passed:
        text = f"{verdict.text} and nothing is answered"
        return fail("approval", text, "renew it, then set approval_ends in site.toml", code=Code.POLICY)
    if days < ENDS_SOON_DAYS:
        return warn("approval", f"{verdict.text}, in {days:.1f} days", "renew it in time")
    return ok("approval", verdict.text)


def analysts(policy: Policy) -> Check:
    """Who may ask, and whether a person decides."""
    if not policy.analysts:
        todo = f"write into site.toml: {allowing('NAME')}, with the name in the analyst's certificate"
        return warn("analysts", "nobody may ask yet: every study is declined", todo)
    who = "every analyst of the federation" if ANY in policy.analysts else ", ".join(policy.analysts)
    decides = "a person decides about each study" if policy.approval is Approval.ASK else "the rules decide"
    return ok("analysts", f"{who} may ask; {decides}")


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
    # Records that are not there should stop the start, not a study.
    reader.check_opens(config.records, config.engine.reading)
    with alone(config.state), opened(config) as store:
        worker = SiteWorker(first, config.policy, store, engine(config))
        about = {
            "event": "serving",
            "site": config.name,
            "federation": first.identity.federation,
            "coordinator": first.coordinator,
        }
        click.echo(json.dumps(about, sort_keys=True))
        log.event("started", site=config.name)
        end = approval(config.policy, store.now())
        if end.level is not Level.OK:
            name = "approval-ends-soon" if end.level is Level.WARN else "approval-ended"
            log.event(name, logging.WARNING, detail=f"{end.text}: {end.todo}")
        daemon = SiteDaemon(worker, identity, statement_of(config))
        told = notifying(
            config.notify,
            federation=first.identity.federation,
            site=config.name,
            count=lambda outcome: daemon.contact.notices.update((outcome,)),
        )
        with told:
            asyncio.run(_until_stopped(daemon, config.metrics_file, store))
        log.event("stopped", site=config.name)


async def _until_stopped(daemon: SiteDaemon, metrics: Path | None, store: SiteStore) -> None:
    task = asyncio.ensure_future(daemon.run())
    if metrics is not None:
        written = asyncio.ensure_future(keep_written(metrics, daemon.contact, lambda: store.ledger.totals))
        task.add_done_callback(lambda _: written.cancel())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with suppress(asyncio.CancelledError):
        await task
