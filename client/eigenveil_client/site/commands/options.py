"""Options that many commands of a site share."""

from __future__ import annotations

from pathlib import Path

import click

CONFIG = click.option(
    "--config", "config_file", type=click.Path(path_type=Path), required=True, help="The site's site.toml."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
