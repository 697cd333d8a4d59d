"""The command that shows what a site allows: policy."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import click

from eigenveil.study.plain_values import plain as plain_value
from eigenveil_client.site.commands.options import CONFIG, JSON
from eigenveil_client.site.commands.tables import plain, show, table
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.policy import Policy
from eigenveil_common.command import tell


@click.command()
@CONFIG
@JSON
def policy(config: SiteConfig, as_json: bool) -> None:
    """Show what this site allows: every rule, what it means, and whether site.toml changed it."""
    tell({"site": config.name, "rules": rules(config.policy)}, as_json, _show)


def rules(stated: Policy) -> list[dict[str, Any]]:
    """Every key of the policy, in the order of site.toml."""
    return [
        {
            "key": one.name,
            "value": _value(getattr(stated, one.name)),
            "default": getattr(stated, one.name) == one.default,
            "meaning": one.metadata["about"],
        }
        for one in fields(stated)
    ]


def _value(value: Any) -> Any:
    """As site.toml says it; JSON has no number for inf."""
    if value is None or value == math.inf:
        return "" if value is None else "inf"
    return str(value) if hasattr(value, "isoformat") else plain_value(value)


def _show(told: dict[str, Any]) -> None:
    listed = table("key", "value", "default", "meaning", title=f"what {told['site']} allows")
    for rule in told["rules"]:
        value = ", ".join(rule["value"]) if isinstance(rule["value"], list) else str(rule["value"])
        default = "yes" if rule["default"] else "no"
        listed.add_row(rule["key"], *plain(value), default, rule["meaning"])
    show(listed)


COMMANDS = (policy,)
