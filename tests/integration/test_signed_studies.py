"""The command line, Python and the console's draft each reach a study that its analyst signed. [R31]"""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from eigenveil.reporting.verify import load_release
from eigenveil.study.study import Federation
from eigenveil.study.toml import parse_study, study_to_toml
from eigenveil.study_authorization import release_analyst
from eigenveil_client.analyst.profile import KEY_FILE
from eigenveil_client.connection.identity_files import ABOUT
from eigenveil_client.site.commands.main import main as site_main
from eigenveil_server.console.submission import study_file, submit_command
from tests.client.commands import eigenveil as command
from tests.integration.stage import SITES, Stage

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _profile(stage: Stage, unpainted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EIGENVEIL_PROFILE", str(stage.layout.analyst))


def answer_of(capfd: Capture, *words: str) -> Any:
    assert command([*words, "--json"]) == 0
    return json.loads(capfd.readouterr().out.strip().splitlines()[-1])


def named(stage: Stage, name: str) -> str:
    return stage.text.replace('name = "breast-cancer"', f'name = "{name}"', 1)


def key_words(digits: str) -> str:
    """Description of an analyst: a key, and the name that it signed in."""
    return f"the holder of the key with the fingerprint {digits}, in the name of ada"


def check_signed(release: Path, digits: str, capfd: Capture) -> None:
    """The release names this key, which offline verification says too."""
    assert release_analyst(load_release(release.read_bytes()).document).fingerprint == digits
    value = answer_of(capfd, "verify", str(release))
    assert value["analyst"]["fingerprint"] == digits
    assert command(["verify", str(release)]) == 0
    assert f"Requested by {key_words(digits)}. That is your present key." in capfd.readouterr().out


def test_the_consoles_draft_reaches_one_signed_study_however_often_its_command_is_run(
    stage: Stage, tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = answer_of(capfd, "key", "show")["fingerprint"]
    study = parse_study(named(stage, "signed-from-a-draft"))
    text = study_file(study, "from-the-console")
    monkeypatch.chdir(tmp_path)
    Path("signed-from-a-draft.toml").write_text(text)
    program, *words = shlex.split(submit_command(study, "from-the-console"))
    assert program == "eigenveil"
    assert "no query is sent before its analyst signs" in text
    assert "--yes" not in words, "a person reads it"
    first = answer_of(capfd, *words, "--yes")
    assert answer_of(capfd, *words, "--yes")["study"] == first["study"]
    assert digits in first["signed"]
    assert command(["study", "watch", first["study"]]) == 0
    capfd.readouterr()
    answer_of(capfd, "study", "result", first["study"], "--out", str(tmp_path))
    check_signed(tmp_path / "release.zip", digits, capfd)


def confirm_once_more(config: Path, digits: str) -> None:
    """People of a site decide what it wrote down of another key: they hear the digits of before."""
    words = ["analysts", "confirm", "ada", "--fingerprint", digits, "--by", "Kim", "--config", str(config)]
    with mock.patch.object(sys, "argv", ["eigenveil-site", *words]):
        assert site_main() == 0


def test_an_analyst_with_an_unconfirmed_key_gets_no_answer(
    stage: Stage, tmp_path: Path, capfd: Capture
) -> None:
    """As a coordinator that signs with a key of its own would: the same name, the same certificate."""
    site, digits = SITES[0], answer_of(capfd, "key", "show")["fingerprint"]
    profile = tmp_path / "profile"
    profile.mkdir(mode=0o700)
    for path in stage.layout.analyst.iterdir():
        if path.is_file() and path.name != KEY_FILE:
            (profile / path.name).write_bytes(path.read_bytes())
            (profile / path.name).chmod(0o600)
    assert (profile / ABOUT).exists()
    assert answer_of(capfd, "key", "show", "--profile", str(profile))["fingerprint"] != digits
    file = tmp_path / "study.toml"
    study = parse_study(named(stage, "another-key"))
    file.write_text(study_to_toml(replace(study, federation=Federation(sites=(site,)))))
    submitted = answer_of(capfd, "study", "submit", "--yes", str(file), "--profile", str(profile))
    assert command(["study", "watch", submitted["study"]]) == 11
    rows = answer_of(capfd, "study", "show", submitted["study"])
    assert rows["spent_micro_rho"] == 0
    confirm_once_more(stage.layout.site_config(site), digits)  # the stage is as it was
