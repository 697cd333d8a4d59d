"""Options that many commands of a site share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from eigenveil_client.site.config import SiteConfig


def _loaded(context: click.Context, parameter: click.Parameter, path: Path) -> SiteConfig:
    from eigenveil_client.site import config as site_config

    return site_config.load(path)


STATED, HELP = click.Path(path_type=Path), "The site's site.toml."
CONFIG = click.option("--config", type=STATED, required=True, help=HELP, callback=_loaded)
CONFIG_FILE = click.option("--config", "config_file", type=STATED, required=True, help=HELP)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
