"""`eigenveil-site doctor`: the configuration, the files, the ledgers, the records, then the network."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

from eigenveil.errors import EigenveilError
from eigenveil_client.connection import doctor
from eigenveil_client.records import records
from eigenveil_client.records.tables import open_table
from eigenveil_client.site import config as site_config
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.daemon.service import approval, begun, check_role, clock, opened
from eigenveil_common.doctor import Check, Level, disk, examine, fail, ok, warn


def site_checks(config_file: Path) -> list[Check]:
    """Everything about a site; writes nothing and sends nothing but a greeting."""
    try:
        config = site_config.load(config_file)
    except EigenveilError as problem:
        return [fail("configuration", str(problem))]
    secrets = [
        config.state,
        config.state.with_name("egress.key"),
        config.state.with_name("serve.lock"),
        *([config.proxy_credentials] if config.proxy_credentials else []),
    ]
    settings = [config_file, config_file.absolute().parent]
    return [
        ok("configuration", f"{config_file} names the site {config.name}"),
        _approval(config),
        disk(config.state.parent),
        doctor.files(config.identity, *secrets, folders=[config.state.parent], settings=settings),
        examine("ledger", partial(_ledger, config)),
        examine("records", partial(_records, config)),
        *doctor.identity_and_network(
            config.identity, lambda: config.proxy_rule, lambda stored: check_role(stored, config.name)
        ),
    ]


def _approval(config: SiteConfig) -> Check:
    found = approval(config, clock(config))
    level = Level.FAIL if not found.ok else Level.WARN if found.warning else Level.OK
    return Check(about=found.about, level=level, text=found.text)


def _ledger(config: SiteConfig) -> Check:
    if not begun(config):
        return warn("ledger", f"{config.state} is not there yet", "it is made when the daemon first starts")
    with opened(config) as store:
        sent = len(store.egress.rows())
        text = f"both chains replay: {store.ledger.ledger.size} entries, {sent} messages that left"
        return ok("ledger", text)


def _records(config: SiteConfig) -> Check:
    table = open_table(config.records)
    if config.policy.person_column:
        records.find_column(table.headers, config.policy.person_column)
    for path in (config.records, config.records.parent):
        if path.stat().st_mode & 0o022:
            todo = f"run: chmod go-w {shlex.quote(str(path))}"
            return warn("records", f"others can change {path}, and with it what is answered", todo)
    return ok("records", f"{config.records} can be read and has {len(table.headers)} columns")
