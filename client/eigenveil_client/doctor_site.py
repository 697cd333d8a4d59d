"""`eigenveil-site doctor`: the configuration, the files, the ledgers, the records, then the network."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from eigenveil.errors import EigenveilError
from eigenveil_client import doctor, records, site_config
from eigenveil_client.site_config import SiteConfig
from eigenveil_client.site_service import check_role, opened
from eigenveil_client.tables import open_table
from eigenveil_client.witness import LedgerWitness
from eigenveil_common.doctor import Check, disk, examine, fail, ok, warn


def site_checks(config_file: Path) -> list[Check]:
    """Everything about a site; writes nothing and sends nothing but a greeting."""
    try:
        config = site_config.load(config_file)
    except EigenveilError as problem:
        return [fail("configuration", str(problem))]
    secrets = [config.state, *([config.proxy_credentials] if config.proxy_credentials else [])]
    return [
        ok("configuration", f"{config_file} names the site {config.name}"),
        disk(config.state.parent),
        doctor.files(config.identity, *secrets),
        examine("ledger", partial(_ledger, config)),
        examine("records", partial(_records, config)),
        *doctor.identity_and_network(
            config.identity, lambda: config.proxy_rule, lambda stored: check_role(stored, config.name)
        ),
    ]


def _ledger(config: SiteConfig) -> Check:
    if not config.state.exists() and LedgerWitness(config.identity).seen() is None:
        return warn("ledger", f"{config.state} is not there yet", "it is made when the daemon first starts")
    with opened(config) as store:
        sent = len(store.egress.rows())
        text = f"both chains replay: {store.ledger.ledger.size} entries, {sent} messages that left"
        return ok("ledger", text)


def _records(config: SiteConfig) -> Check:
    table = open_table(config.records)
    if config.person_column:
        records.find_column(table.headers, config.person_column)
    return ok("records", f"{config.records} can be read and has {len(table.headers)} columns")
