"""A command that is printed for people to go on with survives being pasted."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from eigenveil_client.analyst.profile import next_command
from eigenveil_client.site.commands import main
from tests.server.process import command

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One with spaces, in a path wider than a terminal."""
    path = tmp_path / "a folder's [name]" / ("x" * 100)
    path.mkdir(parents=True)
    return path


def printed(out: str, mark: str) -> list[str]:
    """The words of the one command behind `mark`, as a shell reads its line."""
    (line,) = [line for line in out.splitlines() if line.startswith(mark)]
    return shlex.split(line.removeprefix(mark))


def test_a_coordinator_says_how_it_is_served(folder: Path) -> None:
    code, out, _ = command("init", "--dir", str(folder), "--federation", "fed")
    config = str(folder / "coordinator.toml")
    assert (code, printed(out, "Next:")) == (0, ["eigenveil-coordinator", "serve", "--config", config])
    backup = folder.parent / "a copy"
    assert command("backup", "--config", config, "--out", str(backup))[0] == 0
    code, out, _ = command("restore", "--from", str(backup), "--dir", str(folder.parent / "a new one"))
    config = str(folder.parent / "a new one" / "coordinator.toml")
    assert (code, printed(out, "Next:")) == (0, ["eigenveil-coordinator", "serve", "--config", config])


def test_a_site_says_how_it_is_enrolled(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    words = ["init", "--dir", str(folder), "--name", "a", "--records", "r.csv"]
    monkeypatch.setattr("sys.argv", ["eigenveil-site", *words])
    assert main.main() == 0
    config = str(folder / "site.toml")
    wanted = ["eigenveil-site", "enrol", "--config", config, "--join", "FILE"]
    assert printed(capfd.readouterr().out, "next:") == wanted


def test_an_analyst_goes_on_with_the_same_profile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EIGENVEIL_PROFILE", str(folder / "mine"))
    for profile in (None, folder / "mine"):
        assert next_command(profile, "study", "watch", "abcdef") == "eigenveil study watch abcdef"
    words = shlex.split(next_command(folder, "study", "watch", "abcdef"))
    assert words == ["eigenveil", "study", "watch", "abcdef", "--profile", str(folder)]
