"""`eigenveil study` against a real federation: every command, every way to end."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from eigenveil_client.demo.federation import COORDINATOR
from eigenveil_client.site.commands.main import main as site_main
from eigenveil_server import cli
from tests.client.commands import eigenveil, spawned
from tests.integration.stage import SITES, Stage
from tests.support import JARGON

PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
TIMEOUT = 120.0
Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("unpainted")


@pytest.fixture(autouse=True)
def _profile(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EIGENVEIL_PROFILE", str(stage.layout.analyst))


def study_file(stage: Stage, folder: Path, old: str = "", new: str = "") -> str:
    """The stage's study as a file, with one change."""
    assert old in stage.text
    path = folder / "study.toml"
    path.write_text(stage.text.replace(old, new, 1) if old else stage.text)
    return str(path)


def answer_of(capfd: Capture, *arguments: str) -> tuple[int, Any]:
    """Exit code and the last JSON object of `eigenveil study ...`."""
    code = eigenveil(["study", *arguments, "--json"])
    return code, json.loads(capfd.readouterr().out.strip().splitlines()[-1])


def digests(capfd: Capture) -> list[str]:
    return [row["study"] for row in answer_of(capfd, "list")[1]["studies"]]


def operators_and_officers_read(stage: Stage, capfd: Capture) -> str:
    """Output of the commands of the other two programs."""
    coordinator = str(stage.layout.root / COORDINATOR / "coordinator.toml")
    site = str(stage.layout.site_config(SITES[0]))
    statement = [
        *((cli.main, word, "--config", coordinator) for word in ("status", "studies", "doctor")),
        *((site_main, *words, "--config", site) for words in (("studies",), ("ledger", "show"))),
        (site_main, "egress", "show", "--config", site),
        (site_main, "explain", "--config", site, "commands"),
    ]
    for main, *words in statement:
        with mock.patch.object(sys, "argv", ["a program", *words]):
            main()
    return "".join(capfd.readouterr())


def test_submit_wait_and_everything_after(stage: Stage, tmp_path: Path, capfd: Capture) -> None:
    name = 'name = "breast-cancer"'
    file = study_file(stage, tmp_path, name, 'name = "commands"')
    code, done = answer_of(capfd, "submit", "--yes", file, "--wait", "--out", str(tmp_path / "out"))
    assert code == 0
    assert done["guarantee"]["epsilon"] <= 0.3
    assert "Privacy guarantee" in Path(done["report"]).read_text()
    key = stage.analyst.authorities.release_key.hex()
    assert eigenveil(["verify", done["release"], "--key", key]) == 0
    capfd.readouterr()

    code, rows = answer_of(capfd, "list")
    assert done["study"] in [row["study"] for row in rows["studies"]]
    for wanted in (done["study"], done["study"][:6], "commands"):
        code, row = answer_of(capfd, "show", wanted)
        assert (code, row["study"], row["state"]) == (0, done["study"], "released")
    code, last = answer_of(capfd, "watch", "commands")
    assert (code, last["state"]) == (0, "released")
    assert set(last["sites"]) == set(SITES)

    capfd.readouterr()
    for words in (["list"], ["show", "commands"], ["explain", file], ["watch", "commands"]):
        assert eigenveil(["study", *words]) == 0
    assert eigenveil(["study", "result", "commands", "--out", str(tmp_path / "shown")]) == 0
    statement = capfd.readouterr().out + operators_and_officers_read(stage, capfd)
    assert JARGON.findall(statement) == []
    for word in ("Principal components", "% of its cost", "adds noise", "epsilon", "like commands", "online"):
        assert word in statement

    first = Path(done["release"]).read_bytes()
    code, again = answer_of(capfd, "result", done["study"][:8], "--out", str(tmp_path / "again"))
    assert (code, Path(again["release"]).read_bytes()) == (0, first)
    log = tmp_path / "rounds.json"
    code, _ = answer_of(capfd, "log", "commands", "--out", str(log))
    assert (code, eigenveil(["verify", done["release"], "--key", key, "--log", str(log)])) == (0, 0)
    assert "every query and the result follow" in capfd.readouterr().out
    code, problem = answer_of(capfd, "cancel", "commands")
    assert (code, problem["error"]) == (9, "conflict")


def test_a_folder_with_another_release_is_refused_before_the_study_begins(
    stage: Stage, tmp_path: Path, capfd: Capture
) -> None:
    before = digests(capfd)
    (tmp_path / "release.zip").write_text("mine")
    for extra in ([], ["--submission", "one-more"]):
        code, problem = answer_of(
            capfd, "submit", "--yes", study_file(stage, tmp_path), "--wait", "--out", str(tmp_path), *extra
        )
        assert (code, "Name another folder with --out" in problem["message"]) == (9, True)
    assert digests(capfd) == before


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_signed_before_a_person_has_read_it_and_agreed(
    stage: Stage, tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, before = study_file(stage, tmp_path, 'name = "breast-cancer"', 'name = "as-read"'), digests(capfd)
    for words in (["--json"], []):
        assert eigenveil(["study", "submit", file, *words]) == 2
        assert "a signature needs confirmation" in capfd.readouterr().err
    monkeypatch.setattr("sys.stdin", Terminal("n\ny\n"))
    assert eigenveil(["study", "submit", file]) == 9
    shown = capfd.readouterr().err
    for word in (
        "You sign as-read",
        "a round needs 3 of 3",
        "purpose: ",
        "Sign and submit it?",
        "not signed",
    ):
        assert word in shown
    assert digests(capfd) == before
    assert eigenveil(["study", "submit", file]) == 0
    capfd.readouterr()
    (digest,) = set(digests(capfd)) - set(before)
    assert answer_of(capfd, "cancel", digest)[0] in (0, 9)  # 9: it has ended already


def test_the_same_study_is_not_paid_for_twice_unasked(
    stage: Stage, tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = study_file(stage, tmp_path, 'name = "breast-cancer"', 'name = "only-once"')
    first = answer_of(capfd, "submit", "--yes", file, "--submission", "first")[1]["study"]
    for words in ([], ["--submission", "second"]):
        code, problem = answer_of(capfd, "submit", "--yes", file, *words)
        assert (code, first[:12] in problem["message"], "--again" in problem["message"]) == (9, True, True)
    monkeypatch.setattr("sys.stdin", Terminal("n\ny\n"))
    before = len(digests(capfd))
    assert eigenveil(["study", "submit", "--yes", file]) == 9
    capfd.readouterr()
    assert len(digests(capfd)) == before
    assert eigenveil(["study", "submit", "--yes", file]) == 0
    capfd.readouterr()
    assert len(digests(capfd)) == before + 1
    again = answer_of(capfd, "submit", "--yes", file, "--again")[1]["study"]
    for study in digests(capfd)[-2:]:
        assert answer_of(capfd, "cancel", study)[0] in (0, 9)  # 9: it has ended already
    assert digests(capfd)[-1] == again
    lost_reply = answer_of(capfd, "submit", "--yes", file, "--submission", "first")
    assert lost_reply[1]["study"] == first


def test_cancel_and_ctrl_c(stage: Stage, tmp_path: Path, capfd: Capture) -> None:
    stage.federation.kill(SITES[0])  # the study waits for it, so there is time to interfere
    try:
        file = study_file(stage, tmp_path, 'name = "breast-cancer"', 'name = "to-cancel"')
        digest = answer_of(capfd, "submit", "--yes", file)[1]["study"]
        code, problem = answer_of(capfd, "result", digest)
        assert (code, problem["error"]) == (10, "not-ready")

        with spawned("study", "watch", digest, "--progress", **PIPES) as watch:
            assert watch.stdout is not None
            assert "round 1" in watch.stdout.readline()
            watch.send_signal(signal.SIGINT)
            _, errors = watch.communicate(timeout=TIMEOUT)
        assert (watch.returncode, "The study continues" in errors) == (130, True), errors
        assert answer_of(capfd, "show", digest)[1]["state"] == "running"

        cancelling = threading.Timer(0.5, lambda: eigenveil(["study", "cancel", digest, "--json"]))
        cancelling.start()
        code = eigenveil(["study", "watch", digest])
        cancelling.join()
        assert code == 12
        assert answer_of(capfd, "show", digest)[1]["state"] == "cancelled"
    finally:
        stage.federation.restart(SITES[0])


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("epsilon = 0.3", "epsilon = 300.0", 6, "max_epsilon_per_study"),
        ('"hospital-2"', '"hospital-9"', 2, "not enrolled in demo: hospital-9"),
        ("max_records = 100000", "max_records = 2_000_000_000", 2, "lower max_records"),
        ("[records]", "[records]\nextra = 1", 2, "[records]: unknown key extra"),
    ],
)
def test_a_bad_study_is_refused_with_nothing_charged(
    old: str, new: str, code: int, message: str, stage: Stage, tmp_path: Path, capfd: Capture
) -> None:
    before = digests(capfd)
    got, problem = answer_of(capfd, "submit", "--yes", study_file(stage, tmp_path, old, new))
    assert (got, message in problem["message"]) == (code, True), problem
    assert digests(capfd) == before


def test_a_study_over_a_sites_policy_is_refused_with_the_setting_that_it_needs(
    stage: Stage, tmp_path: Path, capfd: Capture
) -> None:
    file = study_file(stage, tmp_path, "minimum_cohort = 20", "minimum_cohort = 21")
    code, problem = answer_of(capfd, "submit", "--yes", file, "--wait", "--out", str(tmp_path))
    assert (code, problem["error"]) == (6, "site-policy")
    assert "hospital-1: minimum_records 20 (this study needs 21, by minimum_cohort)" in problem["message"]


def test_an_unknown_study_is_not_found(stage: Stage, capfd: Capture) -> None:
    for wanted in ("nothing", "abcdef012345", "abc"):
        code, problem = answer_of(capfd, "show", wanted)
        assert (code, problem["error"]) == (8, "not-found")
