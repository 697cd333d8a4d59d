"""Help, versions, Ctrl-C, unusable paths and shared shells of all three programs."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np
import pytest

from eigenveil.errors import Code
from eigenveil.study.checks import toml_text
from eigenveil_client import cli as analyst
from eigenveil_client.demo.processes import Processes
from eigenveil_client.site import config
from eigenveil_client.site.commands import main as site
from eigenveil_common.files import check_output, is_occupied, make_folder, path_exists, write_durably
from eigenveil_server import cli as coordinator
from tests.client.commands import eigenveil
from tests.repo.tree import PACKAGES, ROOT
from tests.server.rig import study_toml
from tests.support import Capture, Patch, refused

PROGRAMS = {"eigenveil": analyst.main, "eigenveil-site": site.main, "eigenveil-coordinator": coordinator.main}

GROUPS = (analyst.eigenveil, site.group, coordinator.group)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: Patch, capsys: Capture) -> Run:
    """Exit code, output and errors of a program with these words."""

    def one(program: str, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", [program, *words])
        code = PROGRAMS[program]()
        message = capsys.readouterr()
        return code, message.out, message.err

    return one


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


def started(code: str, folder: Path, *words: str) -> list[str]:
    """Command of a program that runs `code`, and finds modules in `folder` first."""
    path = ":".join(map(str, (folder, *PACKAGES.values())))
    code = f"import signal, sys; sys.path[:0] = sys.argv.pop(1).split(':'); {code}"
    return [sys.executable, "-c", code, path, *words]


def pressed(program: str, library: str, words: str, folder: Path, handler: str) -> tuple[int, str, str]:
    """Run a program in whose import of `library` Ctrl-C comes."""
    (folder / f"{library}.py").write_text(PRESSED)
    module, function = SCRIPTS[program].split(":")
    code = f"signal.signal(signal.SIGINT, signal.{handler}); from {module} import {function} as run"
    command = started(f"{code}; sys.exit(run())", folder, *words.split(), "--json")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
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


@pytest.mark.parametrize(("words", "file"), [
    (["eigenveil", "study", "example"], "study"),
    (["eigenveil", "study", "example", "profile"], "profile"),
    (["eigenveil-site", "example"], "site"),
    (["eigenveil-coordinator", "example"], "coordinator"),
])  # fmt: skip
def test_each_configuration_is_explained_by_a_command(words: list[str], file: str, run: Run) -> None:
    text = (ROOT / "deploy" / "config" / f"{file}.example.toml").read_text()
    assert run(*words) == (0, text, "")


# What is run, and the seconds in which it is interrupted, from its first line of ours on.
COMMANDS = {
    "eigenveil simulate study.toml --data records.csv --repeat 2000": 4.0,
    "eigenveil compare study.toml --data records.csv --repeat 50": 5.0, "eigenveil plan study.toml": 3.0,
    "eigenveil demo --out demo": 6.0, "eigenveil study list --profile nowhere": 1.5,
    "eigenveil-site check --config site.toml": 2.0,
    "eigenveil-coordinator init --dir new --federation north": 2.0,
}  # fmt: skip
MOMENTS = 2


def prepared(folder: Path) -> None:
    (folder / "study.toml").write_text(study_toml(sites=("anna", "bert")))
    values = np.random.default_rng(3).uniform(-1, 1, (400, 4))
    np.savetxt(folder / "records.csv", values, delimiter=",", header="c0,c1,c2,c3", comments="")
    site = {"name": "anna", "records": "records.csv", "identity": "i", "state": "s.db"}
    (folder / "site.toml").write_text(toml_text(site))


def interrupted(words: list[str], folder: Path, after: float) -> tuple[int, str]:
    """Run a command and press Ctrl-C; its exit code, and what it said to standard error."""
    module, function = SCRIPTS[words[0]].split(":")
    code = f"from {module} import {function} as run; print(flush=True); sys.exit(run())"
    command, pipe = started(code, folder, *words[1:]), subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, text=True, stdout=pipe, stderr=pipe) as one:
        assert one.stdout is not None
        one.stdout.readline()
        time.sleep(after)
        one.send_signal(signal.SIGINT)
        _, message = one.communicate(timeout=60)
    return one.returncode, message


@pytest.mark.parametrize(
    "command", [pytest.param(one, marks=pytest.mark.slow if COMMANDS[one] > 1.5 else ()) for one in COMMANDS]
)
def test_ctrl_c_at_any_moment_is_one_line_and_130(command: str, tmp_path: Path) -> None:
    prepared(tmp_path)
    chance = random.Random(command)
    for _ in range(MOMENTS):
        after = chance.uniform(0.0, COMMANDS[command])
        code, message = interrupted(command.split(), tmp_path, after)
        assert "Traceback" not in message, f"after {after:.2f} s"
        assert code == 130 or ("interrupted" not in message and "simulate" not in command), message


# Where an exception goes nowhere, or comes when nobody is left to catch it.
UNCAUGHT = {
    "a destructor": "class Late:\n    def __del__(self): press()\ndef main():\n    Late()\n    return 0\n",
    "the end": "import atexit\ndef main():\n    atexit.register(press)\n    return 0\n",
}


@pytest.mark.parametrize("where", UNCAUGHT)
def test_ctrl_c_where_nothing_would_catch_it_is_one_line_too(where: str, tmp_path: Path) -> None:
    press = "import os, signal\ndef press():\n    os.kill(os.getpid(), signal.SIGINT)\n    sum(range(1000))\n"
    (tmp_path / "late.py").write_text(press + UNCAUGHT[where])
    command = started("from eigenveil_common.start import start; sys.exit(start('late'))", tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "error [interrupted]: interrupted\n")


STORAGE, CONFLICT = 70, 9
TOO_LONG = "x" * 300  # no file can have this name, whoever asks: tests may run as root
STUDY = Path(__file__).parents[2] / "deploy" / "config" / "study.example.toml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("mine")
    return path


@pytest.mark.parametrize("words", [
    ("simulate", STUDY, "--data", "records.csv", "--out", "{file}/x"),
    ("simulate", STUDY, "--data", "records.csv", "--out", "{folder}/{long}"),
    ("compare", STUDY, "--data", "records.csv", "--out", "{folder}/none/x.csv"),
    ("compare", STUDY, "--data", "records.csv", "--out", "{file}/x.csv"),
    ("report", "release.zip", "--out", "{folder}/none/x.html"),
    ("demo", "--out", "{file}/x"),
    ("demo", "--out", "{folder}/{long}"),
    ("enrol", "--join", "join.json", "--profile", "{folder}/{long}"),
    ("study", "list", "--profile", "{folder}/{long}"),
])  # fmt: skip
def test_unusable_path_is_named(
    words: tuple[object, ...], file: Path, tmp_path: Path, capfd: Capture
) -> None:
    named = [str(word).format(file=file, folder=tmp_path, long=TOO_LONG) for word in words]
    code = eigenveil([*named, "--json"])
    result = json.loads(capfd.readouterr().out)
    assert (code, result["error"]) == (STORAGE, Code.STORAGE.value)
    assert named[-1] in result["message"]


def test_a_table_does_not_replace_its_records(file: Path, tmp_path: Path, capfd: Capture) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    assert eigenveil(["compare", str(STUDY), "--data", str(file), "--out", str(link)]) == CONFLICT
    assert "would replace what it is made of" in " ".join(capfd.readouterr().err.split())
    assert file.read_text() == "mine"


def test_refused_paths_come_with_advice(file: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    with refused(Code.STORAGE, "make its folder first"):
        write_durably(tmp_path / "none" / "file", b"")
    with refused(Code.STORAGE, "name a file in it"):
        check_output(tmp_path)
    check_output(file)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    for name in ("mkdir", "exists"):
        monkeypatch.setattr(Path, name, forbidden)
    for act in (make_folder, path_exists, is_occupied):
        with refused(Code.STORAGE, f"{file}: Permission denied; name a place where you may write"):
            act(file)


SITE = "eigenveil-site"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    logs = tmp_path / "logs"
    logs.mkdir()
    one = Processes(logs)
    yield one
    one.stop()


def make(folder: Path) -> list[str]:
    return ["init", "--dir", str(folder), "--name", "a", "--records", "r.csv", "--json"]


def test_a_failing_command_is_named_with_its_log(processes: Processes, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    first, second, third = (processes.enqueue(f"job-{i}", SITE, *make(folder)) for i in range(3))
    processes.finish([first])
    with refused(Code.CONFLICT, "job-1: ", "exists already", str(second.log)):
        processes.finish([second])
    with refused(Code.CONFLICT, "job-2: "):
        processes.finish([third])
    assert first.process is third.process


def test_a_shell_that_ends_ends_the_wait(processes: Processes, tmp_path: Path) -> None:
    first = processes.enqueue("first", SITE, *make(tmp_path / "site"))
    processes.finish([first])
    first.process.kill()
    first.process.wait()
    with refused(Code.BUG, "second ended with exit code -9"):
        processes.finish([processes.enqueue("second", SITE, "example")])
