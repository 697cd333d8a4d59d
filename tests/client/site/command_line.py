"""eigenveil-site as a person runs it, in this process."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from eigenveil_client.site.commands import main
from eigenveil_common import command
from tests.client.site.support import SITE, Stage


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Typed(io.StringIO):
    def __init__(self, text: str, terminal: bool) -> None:
        super().__init__(text)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def written(stage: Stage, more: str = "") -> Path:
    path = stage.folder / "site.toml"
    files = f'records = "{stage.records.name}"\nidentity = "identity"\nstate = "state.db"\n'
    message = {line.split(" = ")[0] for line in more.splitlines()}
    usual = {"approval": '"auto"', "analysts": '["*"]'}
    rules = "".join(f"{key} = {value}\n" for key, value in usual.items() if key not in message)
    path.write_text(f'name = "{SITE}"\n{files}{rules}{more}')
    return path


def site(
    config: Path | None, *words: object, answer: str = "", width: int = 160, terminal: bool = False
) -> Ran:
    """Run `eigenveil-site WORDS --config CONFIG`, `width` columns wide, with a typed `answer`."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["eigenveil-site", *map(str, words), *(("--config", str(config)) if config else ())]
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.object(sys, "stdin", Typed(answer, terminal=bool(answer))),
        mock.patch.multiple(command.console, _width=width, _force_terminal=terminal),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = main.main()
    return Ran(code=code, out=out.getvalue(), err=err.getvalue())


def check_row(config: Path, name: str) -> dict[str, str]:
    (row,) = [row for row in site(config, "check", "--json").json["checks"] if row["check"] == name]
    found: dict[str, str] = row
    return found
