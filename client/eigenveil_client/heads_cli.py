"""eigenveil-site accept-head."""

from __future__ import annotations

from pathlib import Path

import click

from eigenveil_client import site_config, site_service
from eigenveil_client.site_options import CONFIG, JSON
from eigenveil_common.command import say


@click.command(name="accept-head")
@CONFIG
@JSON
def accept_head(config_file: Path, as_json: bool) -> None:
    """Go on with a coordinator whose ledger went back behind what this site had seen of it.

    Only after its operator has said why. What this site has spent itself stays spent. Stop the daemon first.
    """
    config = site_config.load(config_file)
    with site_service.alone(config.state), site_service.opened(config) as store:
        before, now = store.heads.accept()
    text = f"Accepted a ledger of {now} rows in place of one of {before}. Start the daemon again."
    say({"rows_before": before, "rows": now}, as_json, text)


COMMANDS = (accept_head,)
