"""Shared behaviour of all commands: `--json`, one-line errors with exit codes, Ctrl-C as 130."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from eigenveil.errors import Code, EigenveilError, RequestError, install_command
from eigenveil_common.log import frame_locations
from eigenveil_common.start import INTERRUPTED

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
FILE_OR_FOLDER = click.Path(path_type=Path)
SHORT_HELP = {"help_option_names": ["-h", "--help"]}

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def print_result(value: dict[str, Any], as_json: bool, text: str) -> None:
    """Print a result: a JSON object on one line, or text."""
    if as_json:
        click.echo(json.dumps(value, sort_keys=True))
    else:
        console.print(text, markup=False, soft_wrap=True)  # a wrapped command cannot be pasted


def print_result_as(value: dict[str, Any], as_json: bool, show: Callable[[dict[str, Any]], None]) -> None:
    """Print a result: a JSON object on one line, or by `show`."""
    if as_json:
        print_result(value, True, "")
    else:
        show(value)


def shell_command(*arguments: str | Path) -> str:
    """Return a command, quoted for pasting into a shell."""
    return shlex.join(map(str, arguments))


def is_interactive(as_json: bool) -> bool:
    """Return True if a person can answer a prompt."""
    return not as_json and sys.stdin.isatty()


def quote_block(text: str) -> str:
    """Return foreign text with a bar before each line, so that it cannot imitate our output."""
    width = max(console.width - 2, 20)
    lines = (piece for line in text.splitlines() for piece in textwrap.wrap(line, width) or [""])
    return "\n".join(f"| {line}" for line in lines)


def run(group: click.Command, extra: str) -> int:
    """Run a command line and return its exit code; every error is one line on standard error. `extra` is what
    pip installs with eigenveil for these commands."""
    as_json = "--json" in sys.argv
    try:
        with require_extra(extra):
            result = group.main(standalone_mode=False)
        return result if isinstance(result, int) else 0
    except EigenveilError as problem:
        return report_error(problem)
    except click.exceptions.NoArgsIsHelpError as help_request:
        help_request.show()
        return help_request.exit_code
    except click.ClickException as problem:
        return _print_error("usage", problem.format_message(), problem.exit_code, as_json)
    except (KeyboardInterrupt, click.Abort) as stopped:
        return _print_error("interrupted", str(stopped) or "interrupted", INTERRUPTED, as_json)
    except Exception as unexpected:  # noqa: BLE001 - its text may quote a record, so only its place is printed
        where = f"{type(unexpected).__qualname__} at {frame_locations(unexpected.__traceback__)}"
        return _print_error(Code.BUG.value, f"{where}: please report this line", Code.BUG.exit_code, as_json)


@contextmanager
def require_extra(extra: str) -> Iterator[None]:
    """Turn a missing library within the block into an error that names `extra`, or several after commas."""
    try:
        yield
    except ModuleNotFoundError as problem:
        library = (problem.name or "").partition(".")[0]
        if not library or library.startswith("eigenveil"):  # a module of ours: a bug
            raise
        raise RequestError(
            Code.BAD_CONFIG,
            f"this needs {library}, which is not installed: {install_command(f'eigenveil[{extra}]')}",
        ) from problem


def report_error(problem: EigenveilError) -> int:
    """Print an error like a command does, and return its exit code."""
    return _print_error(problem.code.value, str(problem), problem.exit_code, "--json" in sys.argv)


def _print_error(code: str, message: str, exit_code: int, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps({"error": code, "message": message}, sort_keys=True))
    errors.print(f"error [{code}]: {message}", markup=False, soft_wrap=True)
    return exit_code
