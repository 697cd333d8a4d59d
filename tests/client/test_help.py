"""All three programs say what they are and what they can do, however they are asked."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from eigenveil import __version__
from eigenveil_client import cli as analyst
from eigenveil_client.analyst.profile import next_command
from eigenveil_client.site import config
from eigenveil_client.site.commands import main
from eigenveil_client.site.commands import main as site
from eigenveil_server import cli as coordinator
from tests.repo.tree import PACKAGES, ROOT
from tests.server.process import command

PROGRAMS = {"eigenveil": analyst.main, "eigenveil-site": site.main, "eigenveil-coordinator": coordinator.main}

GROUPS = (analyst.eigenveil, site.group, coordinator.group)

Capture = pytest.CaptureFixture[str]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Run:
    """Exit code, output and errors of a program with these words."""

    def one(program: str, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", [program, *words])
        code = PROGRAMS[program]()
        message = capsys.readouterr()
        return code, message.out, message.err

    return one


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_and_version_have_short_ways(program: str, run: Run) -> None:
    assert run(program, "-h") == run(program, "--help")
    code, out, err = run(program, "-h")
    assert (code, out.startswith("Usage: "), err) == (0, True, "")
    assert run(program, "doctor", "-h")[0] == 0
    code, out, _ = run(program, "--version")
    assert (code, out) == (0, f"{program}, version {__version__}\n")


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_words_there_is_help(program: str, run: Run) -> None:
    code, out, err = run(program)
    assert (code, out) == (2, "")
    assert err.startswith("Usage: ")
    assert err.strip() == run(program, "--help")[1].strip()


SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
PRESSED = """
import os, signal
os.kill(os.getpid(), signal.SIGINT)
for _ in range(1000): pass
raise ImportError("nobody stopped")
"""


# A library that nothing loads before a command is run, and a command that needs it.
LATE = {
    "eigenveil": ("grpc", "study list"),
    "eigenveil-site": ("grpc", "enrol --config s --join j"),
    "eigenveil-coordinator": ("apsw", "init --dir s --federation a"),
}


def pressed(program: str, library: str, words: str, folder: Path, handler: str) -> tuple[int, str, str]:
    """Run a program in whose import of `library` Ctrl-C comes."""
    (folder / f"{library}.py").write_text(PRESSED)
    module, function = SCRIPTS[program].split(":")
    start = f"import signal, sys; signal.signal(signal.SIGINT, signal.{handler}); "
    start += f"sys.path[:0] = sys.argv.pop(1).split(':'); from {module} import {function} as run"
    path = ":".join(map(str, (folder, *PACKAGES.values())))
    done = subprocess.run(
        [sys.executable, "-c", f"{start}; sys.exit(run())", path, *words.split(), "--json"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("program", SCRIPTS)
def test_ctrl_c_while_modules_are_loaded_is_no_traceback(program: str, late: bool, tmp_path: Path) -> None:
    library, words = LATE[program] if late else ("click", "")
    code, out, err = pressed(program, library, words, tmp_path, "default_int_handler")
    assert (code, err.lstrip("\n")) == (130, "error [interrupted]: interrupted\n")
    assert json.loads(out)["error"] == "interrupted"


@pytest.mark.parametrize("program", SCRIPTS)
def test_ctrl_c_that_is_ignored_as_under_nohup_stops_nothing(program: str, tmp_path: Path) -> None:
    assert "nobody stopped" in pressed(program, "click", "", tmp_path, "SIG_IGN")[2]


# What is in the repository only.
ELSEWHERE = re.compile(r"\b(?:deploy|docs|core|proto)/|\.md\b|\.example\.")


def helps(command: click.Command, context: click.Context) -> Iterator[str]:
    yield command.get_help(context)
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        one = command.get_command(context, name)  # type: ignore[attr-defined]
        yield from helps(one, click.Context(one, info_name=name, parent=context))


def test_no_help_and_no_file_that_is_written_names_a_file_that_is_not_installed(run: Run) -> None:
    message = [text for group in GROUPS for text in helps(group, click.Context(group))]
    assert [text for text in [*message, config.HEADING] if ELSEWHERE.search(text)] == []
    assert "eigenveil-site example" in config.HEADING


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["eigenveil", "study", "example"], "study"),
        (["eigenveil", "study", "example", "profile"], "profile"),
        (["eigenveil-site", "example"], "site"),
        (["eigenveil-coordinator", "example"], "coordinator"),
    ],
)
def test_each_configuration_is_explained_by_a_command(words: list[str], file: str, run: Run) -> None:
    text = (ROOT / "deploy" / "config" / f"{file}.example.toml").read_text()
    assert run(*words) == (0, text, "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One with spaces, in a path wider than a terminal."""
    path = tmp_path / "a folder's [name]" / ("x" * 100)
    path.mkdir(parents=True)
    return path


def printed(out: str, mark: str) -> list[str]:
    (line,) = [line for line in out.splitlines() if line.startswith(mark)]
    return shlex.split(line.removeprefix(mark))


def test_coordinator_init_prints_the_serve_command(folder: Path) -> None:
    code, out, _ = command("init", "--dir", str(folder), "--federation", "fed")
    config = str(folder / "coordinator.toml")
    assert (code, printed(out, "Next:")) == (0, ["eigenveil-coordinator", "serve", "--config", config])
    backup = folder.parent / "a copy"
    assert command("backup", "--config", config, "--out", str(backup))[0] == 0
    code, out, _ = command("restore", "--from", str(backup), "--dir", str(folder.parent / "a new one"))
    config = str(folder.parent / "a new one" / "coordinator.toml")
    assert (code, printed(out, "Next:")) == (0, ["eigenveil-coordinator", "serve", "--config", config])


def test_site_init_prints_the_enrol_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    words = ["init", "--dir", str(folder), "--name", "a", "--records", "r.csv"]
    monkeypatch.setattr("sys.argv", ["eigenveil-site", *words])
    assert main.main() == 0
    config = str(folder / "site.toml")
    wanted = ["eigenveil-site", "enrol", "--config", config, "--join", "FILE"]
    assert printed(capfd.readouterr().out, "next:") == wanted


def test_next_command_names_the_same_profile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EIGENVEIL_PROFILE", str(folder / "mine"))
    for profile in (None, folder / "mine"):
        assert next_command(profile, "study", "watch", "abcdef") == "eigenveil study watch abcdef"
    words = shlex.split(next_command(folder, "study", "watch", "abcdef"))
    assert words == ["eigenveil", "study", "watch", "abcdef", "--profile", str(folder)]
