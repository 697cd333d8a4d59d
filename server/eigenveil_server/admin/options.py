"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

PATH = click.Path(path_type=Path)
config_option = click.option(
    "--config", "config_path", required=True, type=PATH, help="The coordinator.toml that init wrote."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object.")
