"""eigenveil-site accept-checkpoint, accept-loss."""

from __future__ import annotations

import click

from eigenveil_client.site.commands.options import CONFIG, JSON
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.state import opening
from eigenveil_common.command import say


@click.command(name="accept-checkpoint")
@CONFIG
@JSON
def accept_checkpoint(config: SiteConfig, as_json: bool) -> None:
    """Go on with a coordinator whose ledger went back behind what this site had seen of it.

    Only after its operator has said why. What this site has spent itself stays spent. Stop the daemon first.
    """
    with opening.alone(config.state), opening.opened(config) as store:
        before, now = store.checkpoints.accept()
    text = f"Accepted a ledger of {now} rows in place of one of {before}. Start the daemon again."
    say({"rows_before": before, "rows": now}, as_json, text)


@click.command(name="accept-loss")
@CONFIG
@JSON
def accept_loss(config: SiteConfig, as_json: bool) -> None:
    """Go on although this site's own ledger is gone or was put back, and charge what it had committed.

    Only when there is no newer copy of the state. What was spent or set aside counts as spent.
    """
    charged = opening.accept_loss(config)
    text = f"Charged {charged.micro_rho} micro-rho for the rows that are lost. Start the daemon again."
    say({"micro_rho": charged.micro_rho, "atto_delta": str(charged.atto_delta)}, as_json, text)


COMMANDS = (accept_checkpoint, accept_loss)
