"""Options that many commands of a site share, and whom they ask."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from eigenveil_client.site.config import SiteConfig


def _loaded(context: click.Context, parameter: click.Parameter, path: Path) -> SiteConfig:
    from eigenveil_client.site import config as site_config
    from eigenveil_common.trusted_files import check_trusted

    loaded = site_config.load(path)
    check_trusted([path])
    return loaded


STATED, HELP = click.Path(path_type=Path), "The site's site.toml."
CONFIG = click.option("--config", type=STATED, required=True, help=HELP, callback=_loaded)
CONFIG_FILE = click.option("--config", "config_file", type=STATED, required=True, help=HELP)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
BY = click.option("--by", help="Who decides; it stays here [default: asked for, or the login name].")


def who_decides(by: str | None, *, ask: bool) -> str:
    """Who decides: as stated, as said on a terminal, or whoever is logged in."""
    if by is None:
        by = getpass.getuser()
        if ask and sys.stdin.isatty():
            by = click.prompt("Your name, which is kept here with the decision", default=by)
    return by
