"""`eigenveil-site init` asks a person for what is missing, and without a terminal never waits for anybody."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eigenveil_client.site import config as site_config
from eigenveil_client.site.commands import main
from tests.client.site.command_line import Typed

Capture = pytest.CaptureFixture[str]


def init(patch: pytest.MonkeyPatch, folder: Path, typed: Typed, *words: object) -> int:
    patch.setattr(sys, "stdin", typed)
    patch.setattr(sys, "argv", ["eigenveil-site", "init", "--dir", str(folder / "new"), *map(str, words)])
    return main.main()


def test_a_person_is_asked_again_until_it_can_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = tmp_path / "records.csv"
    records.write_text("a\n1\n")
    typed = Typed(f"Anna!\nanna\nnowhere.csv\n{records}\nbob, carla\n", terminal=True)
    assert init(monkeypatch, tmp_path, typed) == 0
    written = site_config.load(tmp_path / "new" / "site.toml")
    assert (written.name, written.records.source) == ("anna", records)
    assert written.policy.analysts == ("bob", "carla")
    assert typed.read() == ""




@pytest.mark.parametrize(("terminal", "json"), [(False, False), (True, True)])
def test_a_script_is_told_what_is_missing(
    terminal: bool, json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    typed = Typed("anna\nr.csv\n\n", terminal)
    assert init(monkeypatch, tmp_path, typed, "--name", "anna", *(["--json"] if json else [])) == 2
    said = capsys.readouterr().err
    assert ("--records" in said, "--name" in said) == (True, False)
    assert typed.tell() == 0
    assert not (tmp_path / "new").exists()
