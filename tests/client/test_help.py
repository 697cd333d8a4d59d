"""All three programs say what they are and what they can do, however they are asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eigenveil import __version__
from eigenveil_client import cli as analyst
from eigenveil_client import site_cli as site
from eigenveil_server import cli as coordinator

PROGRAMS = {
    "eigenveil": analyst.main,
    "eigenveil-site": site.main,
    "eigenveil-coordinator": coordinator.main,
}

Capture = pytest.CaptureFixture[str]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Run:
    """Exit code, output and errors of a program with these words."""

    def one(program: str, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", [program, *words])
        code = PROGRAMS[program]()
        said = capsys.readouterr()
        return code, said.out, said.err

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
