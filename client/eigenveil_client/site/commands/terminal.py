"""Options, prompts and tables that the site's commands share."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from eigenveil_common.command import console, errors

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


def warn_if_outdated(config: SiteConfig) -> None:
    """Print on standard error that a running daemon has to be restarted, if it has another configuration."""
    from eigenveil_client.site.state.store_access import OUTDATED, RESTART, runs_outdated

    if runs_outdated(config):
        errors.print(f"warning: {OUTDATED}: {RESTART}", soft_wrap=True)


def print_warnings(texts: Iterable[str]) -> None:
    """Print each text on standard error, in a line."""
    from eigenveil.reporting.presentation import one_line

    for text in texts:
        errors.print(one_line(f"warning: {text}"), markup=False, soft_wrap=True)


CONFIG_PATH, HELP = click.Path(path_type=Path), "The site's site.toml."
USUAL = Path("site.toml")
CONFIG = click.option(
    "--config", type=CONFIG_PATH, default=USUAL, show_default=True, help=HELP, callback=_loaded
)
CONFIG_FILE = click.option(
    "--config", "config_file", type=CONFIG_PATH, default=USUAL, show_default=True, help=HELP
)
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


def show_table(headings: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Print a table: numbers right-aligned, long cells wrapped and never cut, brackets as they are. One line
    for each row in a file or pipe, else as wide as the terminal."""
    from eigenveil.reporting.presentation import printable_text  # imports numpy

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in NUMERIC else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(printable_text(cell)) for cell in row))
    if not console.is_terminal:
        table.width = console.measure(table, options=console.options.update_width(UNBOUNDED_WIDTH)).maximum
    console.print(table, crop=False)


def moment(at: int) -> str:
    """Return Unix seconds as date and time, UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
