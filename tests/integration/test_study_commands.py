"""`eigenveil study` against a real federation: every command, every way to end."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import threading
import time
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
PATIENCE = 120.0
Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("unpainted")


@pytest.fixture(autouse=True)
def _profile(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command speaks as the stage's analyst."""
    monkeypatch.setenv("EIGENVEIL_PROFILE", str(stage.layout.analyst))


def study_file(stage: Stage, folder: Path, old: str = "", new: str = "") -> str:
    """The stage's study as a file, with one change."""
    assert old in stage.text
    path = folder / "study.toml"
    path.write_text(stage.text.replace(old, new, 1) if old else stage.text)
    return str(path)


def told(capfd: Capture, *arguments: str) -> tuple[int, Any]:
    """Exit code and the last JSON object of `eigenveil study ...`."""
    code = eigenveil(["study", *arguments, "--json"])
    return code, json.loads(capfd.readouterr().out.strip().splitlines()[-1])


def digests(capfd: Capture) -> list[str]:
    """The studies there are."""
    return [row["study"] for row in told(capfd, "list")[1]["studies"]]


def operators_and_officers_read(stage: Stage, capfd: Capture) -> str:
    """What the commands of the other two programs print here."""
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
    code, done = told(capfd, "submit", "--yes", file, "--wait", "--out", str(tmp_path / "out"))
    assert code == 0
    assert done["guarantee"]["epsilon"] <= 0.3
    assert "Privacy guarantee" in Path(done["report"]).read_text()
    key = stage.analyst.release_key.hex()
    assert eigenveil(["verify", done["release"], "--key", key]) == 0
    capfd.readouterr()

    code, rows = told(capfd, "list")
    assert done["study"] in [row["study"] for row in rows["studies"]]
    for wanted in (done["study"], done["study"][:6], "commands"):
        code, row = told(capfd, "show", wanted)
        assert (code, row["study"], row["state"]) == (0, done["study"], "released")
    code, last = told(capfd, "watch", "commands")
    assert (code, last["state"]) == (0, "released")
    assert set(last["sites"]) == set(SITES)

    capfd.readouterr()
    for words in (["list"], ["show", "commands"], ["explain", file], ["watch", "commands"]):
        assert eigenveil(["study", *words]) == 0
    assert eigenveil(["study", "result", "commands", "--out", str(tmp_path / "shown")]) == 0
    statement = capfd.readouterr().out + operators_and_officers_read(stage, capfd)
    assert JARGON.findall(statement) == []
    for word in (
        "Principal components",
        "% of its cost",
        "adds noise",
        "epsilon",
        "like commands",
        "online",
    ):
        assert word in statement

    first = Path(done["release"]).read_bytes()
    code, again = told(capfd, "result", done["study"][:8], "--out", str(tmp_path / "again"))
    assert (code, Path(again["release"]).read_bytes()) == (0, first)
    log = tmp_path / "rounds.json"
    code, _ = told(capfd, "log", "commands", "--out", str(log))
    assert (code, eigenveil(["verify", done["release"], "--key", key, "--log", str(log)])) == (0, 0)
    assert "every query and the result follow" in capfd.readouterr().out
    code, problem = told(capfd, "cancel", "commands")
    assert (code, problem["error"]) == (9, "conflict")


def test_a_folder_with_another_release_is_refused_before_the_study_begins(
    stage: Stage, tmp_path: Path, capfd: Capture
) -> None:
    before = digests(capfd)
    (tmp_path / "release.json").write_text("mine")
    for extra in ([], ["--submission", "one-more"]):
        code, problem = told(
            capfd, "submit", "--yes", study_file(stage, tmp_path), "--wait", "--out", str(tmp_path), *extra
        )
        assert (code, "Name another folder with --out" in problem["message"]) == (9, True)
    assert digests(capfd) == before


def test_explain_charges_nothing(stage: Stage, tmp_path: Path, capfd: Capture) -> None:
    before = digests(capfd)
    code, value = told(capfd, "explain", study_file(stage, tmp_path))
    assert (code, value["algorithm"]) == (0, "gauss-cov")
    assert eigenveil(["study", "explain", study_file(stage, tmp_path)]) == 0
    assert "Queries to each site" in capfd.readouterr().out
    assert digests(capfd) == before


def test_one_submission_is_one_study(stage: Stage, tmp_path: Path, capfd: Capture) -> None:
    file = study_file(stage, tmp_path, 'name = "breast-cancer"', 'name = "just-once"')
    (code, one), again = (told(capfd, "submit", "--yes", file, "--submission", "just-once") for _ in range(2))
    assert (code, one) == again == (0, one)
    other = study_file(stage, tmp_path, "components = 2", "components = 1")
    code, problem = told(capfd, "submit", "--yes", other, "--submission", "just-once")
    assert (code, problem["error"]) == (9, "conflict")


class Terminal(io.StringIO):
    """What a person types."""

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
    assert told(capfd, "cancel", digest)[0] in (0, 9)  # 9: it has ended already


def test_the_same_study_is_not_paid_for_twice_unasked(
    stage: Stage, tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = study_file(stage, tmp_path, 'name = "breast-cancer"', 'name = "only-once"')
    first = told(capfd, "submit", "--yes", file, "--submission", "first")[1]["study"]
    for words in ([], ["--submission", "second"]):
        code, problem = told(capfd, "submit", "--yes", file, *words)
        assert (code, first[:12] in problem["message"], "--again" in problem["message"]) == (9, True, True)
    monkeypatch.setattr("sys.stdin", Terminal("n\ny\n"))
    before = len(digests(capfd))
    assert eigenveil(["study", "submit", "--yes", file]) == 9
    capfd.readouterr()
    assert len(digests(capfd)) == before
    assert eigenveil(["study", "submit", "--yes", file]) == 0
    capfd.readouterr()
    assert len(digests(capfd)) == before + 1
    again = told(capfd, "submit", "--yes", file, "--again")[1]["study"]
    for study in digests(capfd)[-2:]:
        assert told(capfd, "cancel", study)[0] in (0, 9)  # 9: it has ended already
    assert digests(capfd)[-1] == again
    lost_reply = told(capfd, "submit", "--yes", file, "--submission", "first")
    assert lost_reply[1]["study"] == first


def test_cancel_and_ctrl_c(stage: Stage, tmp_path: Path, capfd: Capture) -> None:
    stage.federation.kill(SITES[0])  # the study waits for it, so there is time to interfere
    try:
        file = study_file(stage, tmp_path, 'name = "breast-cancer"', 'name = "to-cancel"')
        digest = told(capfd, "submit", "--yes", file)[1]["study"]
        code, problem = told(capfd, "result", digest)
        assert (code, problem["error"]) == (10, "not-ready")

        with spawned("study", "watch", digest, **PIPES) as watch:
            assert watch.stdout is not None
            assert "round 1" in watch.stdout.readline()
            watch.send_signal(signal.SIGINT)
            _, errors = watch.communicate(timeout=PATIENCE)
        assert (watch.returncode, "The study continues" in errors) == (130, True), errors
        assert told(capfd, "show", digest)[1]["state"] == "running"

        cancelling = threading.Timer(0.5, lambda: eigenveil(["study", "cancel", digest, "--json"]))
        cancelling.start()
        code = eigenveil(["study", "watch", digest])
        cancelling.join()
        assert code == 12
        assert told(capfd, "show", digest)[1]["state"] == "cancelled"
    finally:
        stage.federation.restart(SITES[0])


def test_who_watches_hears_once_that_the_coordinator_is_gone_and_back(stage: Stage, tmp_path: Path) -> None:
    file = study_file(stage, tmp_path, 'name = "breast-cancer"', 'name = "to-lose"')
    stage.federation.kill(SITES[0])  # the study waits for it
    try:
        assert eigenveil(["study", "submit", "--yes", file, "--submission", "lost", "--json"]) == 0
        with spawned("study", "watch", "to-lose", **PIPES) as watch:
            assert watch.stdout is not None
            assert watch.stderr is not None
            assert "round 1" in watch.stdout.readline()
            stage.federation.kill(COORDINATOR)
            told = watch.stderr.readline()
            time.sleep(2)  # several attempts
            stage.federation.restart(COORDINATOR)
            stage.federation.restart(SITES[0])
            _, more = watch.communicate(timeout=PATIENCE)
    finally:
        for name in {COORDINATOR, SITES[0]} - stage.federation.daemons.keys():
            stage.federation.restart(name)
    assert (watch.returncode, told + more) == (0, "connection lost, retrying\nconnected again\n")


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("lower = 5", "lower = 50", 2, "must be below upper bound"),
        ("epsilon = 0.3", "epsilon = -1.0", 2, "epsilon must be a finite number above 0"),
        ("epsilon = 0.3", "epsilon = 300.0", 6, "max_epsilon_per_study"),
        ('"hospital-2"', '"hospital-9"', 2, "not enrolled in demo: hospital-9"),
        ("max_records = 100000", "max_records = 2_000_000_000", 2, "lower max_records"),
        ("components = 2", "components = 31", 2, "between 1 and the 30 columns"),
        ("[records]", "[records]\nextra = 1", 2, "[records]: unknown key extra"),
    ],
)
def test_a_bad_study_is_refused_with_nothing_charged(
    old: str, new: str, code: int, message: str, stage: Stage, tmp_path: Path, capfd: Capture
) -> None:
    before = digests(capfd)
    got, problem = told(capfd, "submit", "--yes", study_file(stage, tmp_path, old, new))
    assert (got, message in problem["message"]) == (code, True), problem
    assert digests(capfd) == before


def test_a_study_over_a_sites_policy_fails_and_says_why(stage: Stage, tmp_path: Path, capfd: Capture) -> None:
    file = study_file(stage, tmp_path, "minimum_cohort = 20", "minimum_cohort = 21")
    code, problem = told(capfd, "submit", "--yes", file, "--wait", "--out", str(tmp_path))
    assert (code, problem["error"]) == (11, "study-failed")
    assert "policy" in problem["message"]


def test_an_unknown_study_is_not_found(stage: Stage, capfd: Capture) -> None:
    for wanted in ("nothing", "abcdef012345", "abc"):
        code, problem = told(capfd, "show", wanted)
        assert (code, problem["error"]) == (8, "not-found")
