"""Options that many commands of an analyst share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

VARIABLE = "EIGENVEIL_PROFILE"

profile_option = click.option(
    "--profile",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Folder of your identity [default: ${VARIABLE} or ~/.config/eigenveil].",
)
dictionary_option = click.option(
    "--dictionary",
    "named",
    metavar="NAME",
    help="Another dictionary than your federation's: a file, or clinical, which is installed with eigenveil.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def at_profile(command: Callable[..., Any]) -> Callable[..., Any]:
    """Both options."""
    return profile_option(json_option(command))
