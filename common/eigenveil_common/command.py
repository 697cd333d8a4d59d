"""What all our commands share: `--json`, errors as one line with their exit code, Ctrl-C as 130."""

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

from eigenveil.errors import TABLE, Code, EigenveilError, RequestError
from eigenveil_common.log import places
from eigenveil_common.start import INTERRUPTED

FILE = click.Path(path_type=Path, dir_okay=False)
FILE_OR_FOLDER = click.Path(path_type=Path)
SHORT_HELP = {"help_option_names": ["-h", "--help"]}

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def say(value: dict[str, Any], as_json: bool, text: str) -> None:
    """Print one result: a JSON object on one line, or text for a person."""
    if as_json:
        click.echo(json.dumps(value, sort_keys=True))
    else:
        console.print(text, markup=False, soft_wrap=True)  # a folded command does not survive pasting


def tell(value: dict[str, Any], as_json: bool, show: Callable[[dict[str, Any]], None]) -> None:
    """Print one result: a JSON object on one line, or as `show` does."""
    if as_json:
        say(value, True, "")
    else:
        show(value)


def typed(*words: str | Path) -> str:
    """A command as a person can paste it into a shell, whatever its paths hold."""
    return shlex.join(map(str, words))


def asks(as_json: bool) -> bool:
    """Whether somebody is there who can answer."""
    return not as_json and sys.stdin.isatty()


def quoted(words: str) -> str:
    """What somebody else wrote, each line behind a bar: none of them can pass for one of ours."""
    width = max(console.width - 2, 20)
    lines = (piece for line in words.splitlines() for piece in textwrap.wrap(line, width) or [""])
    return "\n".join(f"| {line}" for line in lines)


def run(group: click.Command, extra: str) -> int:
    """Run a command line and return its exit code; every error is one line on standard error.

    `extra` is what pip installs with eigenveil for these commands.
    """
    as_json = "--json" in sys.argv
    try:
        with needing(extra):
            result = group.main(standalone_mode=False)
    except EigenveilError as problem:
        return failed(problem)
    except click.exceptions.NoArgsIsHelpError as asked:
        asked.show()
        return asked.exit_code
    except click.ClickException as problem:
        return _fail("usage", problem.format_message(), problem.exit_code, as_json)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", "interrupted", INTERRUPTED, as_json)
    except Exception as surprise:  # noqa: BLE001 - its text may quote a record, so only its place is said
        defect = f"{type(surprise).__qualname__} at {places(surprise.__traceback__)}: please report this line"
        return _fail(Code.BUG.value, defect, TABLE[Code.BUG].exit_code, as_json)
    return result if isinstance(result, int) else 0


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """What is imported meanwhile comes with `extra`, or with several, after commas.

    Raises:
        RequestError: code `bad-config`, a library is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as problem:
        library = (problem.name or "").partition(".")[0]
        if not library or library.startswith("eigenveil"):  # a module of ours: a bug
            raise
        raise RequestError(
            Code.BAD_CONFIG,
            f"this needs {library}, which is not installed: pip install 'eigenveil[{extra}]'",
        ) from problem


def failed(problem: EigenveilError) -> int:
    """Say an error of ours as a command does; its exit code."""
    return _fail(problem.code.value, str(problem), problem.exit_code, "--json" in sys.argv)


def _fail(code: str, message: str, exit_code: int, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps({"error": code, "message": message}, sort_keys=True))
    errors.print(f"error [{code}]: {message}", markup=False, soft_wrap=True)
    return exit_code
