"""Shared options of an analyst's commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from eigenveil_common.command import FOLDER

VARIABLE = "EIGENVEIL_PROFILE"

profile_option = click.option(
    "--profile", type=FOLDER, help=f"Folder of your identity [default: ${VARIABLE} or ~/.config/eigenveil]."
)
dictionary_option = click.option(
    "--dictionary",
    "named",
    metavar="NAME",
    help="A dictionary other than your federation's: a file, or clinical, which is installed with eigenveil.",
)


class Names(click.ParamType[list[str]]):
    """Names, separated by commas."""

    name = "a,b,c"

    def convert(self, value: Any, param: object, ctx: object) -> list[str]:
        return [name.strip() for name in str(value).split(",") if name.strip()]


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def profile_and_json_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --profile and --json."""
    return profile_option(json_option(command))
