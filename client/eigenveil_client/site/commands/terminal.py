"""Options, prompts and tables that the site's commands share."""

from __future__ import annotations

import getpass
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from eigenveil_common.command import console

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from eigenveil_client.site.config import SiteConfig
    from eigenveil_client.site.state.store import SiteStore


def _loaded(context: click.Context, parameter: click.Parameter, path: Path) -> SiteConfig:
    from eigenveil_client.site import config as site_config
    from eigenveil_common.trusted_files import check_trusted

    loaded = site_config.load(path)
    check_trusted([path])
    return loaded


def opened_store(config: SiteConfig) -> AbstractContextManager[SiteStore]:
    """Return the site's store as a context, as `open_site_store`; importing it takes long."""
    from eigenveil_client.site.state.store_access import open_site_store

    return open_site_store(config)


CONFIG_PATH, HELP = click.Path(path_type=Path), "The site's site.toml."
CONFIG = click.option("--config", type=CONFIG_PATH, required=True, help=HELP, callback=_loaded)
CONFIG_FILE = click.option("--config", "config_file", type=CONFIG_PATH, required=True, help=HELP)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
BY = click.option("--by", help="Person who decides; stays here [default: prompt, or login name].")


def decider_name(by: str | None, *, ask: bool) -> str:
    """Return the name of the person who decides: as given, from the prompt, or the login name."""
    if by is None:
        by = getpass.getuser()
        if ask and sys.stdin.isatty():
            by = click.prompt("Your name, which is stored here with the decision", default=by)
    return by


NUMERIC = (
    "bytes",
    "% of its cost",
    "% of the budget",
    "epsilon",
    "lower",
    "upper",
    "round",
    "entry",
    "row",
    "messages",
    "numbers",
    "value",
)
UNBOUNDED_WIDTH = 2**16  # characters: wider than any row


def table(*headings: str, title: str | None = None) -> Table:
    """Return a table; numbers are right-aligned, and long cells are wrapped, never cut."""
    rich_table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        justify = "right" if heading in NUMERIC else "left"
        rich_table.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    return rich_table


def show(rich_table: Table) -> None:
    """Print a table: one line for each row in a file or pipe, else as wide as the terminal."""
    if not console.is_terminal:
        rich_table.width = console.measure(
            rich_table, options=console.options.update_width(UNBOUNDED_WIDTH)
        ).maximum
    console.print(rich_table, crop=False)


def plain(*texts: str) -> tuple[str, ...]:
    """Return texts of others with brackets escaped, so that they are not markup."""
    return tuple(map(escape, texts))


def moment(at: int) -> str:
    """Return Unix seconds as date and time, UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
