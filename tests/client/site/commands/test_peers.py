"""eigenveil-site peers, as people of two hospitals use it beside a telephone. [R28]"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from eigenveil.errors import Code
from eigenveil.key_cards import SignedAnalystKeyCard, SignedSiteKeyCard, cards_from_file, cards_to_file
from tests.client.site.command_line import check_row, site, written
from tests.client.site.peers.people import knowing, mailed, own, roster, theirs
from tests.client.site.support import FEDERATION, SITE, Patch, Stage
from tests.support import analyst_card, analyst_key

DIGITS, OTHERS = theirs(seed=7).check().fingerprint, theirs(seed=8).check().fingerprint


@pytest.fixture
def config(stage: Stage, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(stage.folder)
    return written(stage)


def test_a_card_is_exported_with_digits_that_are_not_in_its_file(stage: Stage, config: Path) -> None:
    result = site(config, "peers", "export", "--json").json
    assert (result["out"], result["site"], result["federation"]) == (f"{SITE}.peer", SITE, FEDERATION)
    (card,) = cards_from_file(Path(f"{SITE}.peer").read_bytes(), SignedSiteKeyCard)
    assert card.check() == own(stage)
    assert (result["key_card"], result["fingerprint"]) == (own(stage).digest, own(stage).fingerprint)
    assert result["fingerprint"].replace(" ", "") not in Path(f"{SITE}.peer").read_text().replace(" ", "")
    assert f"\n    {result['fingerprint']}\n" in site(config, "peers", "export", "--out", "again.peer").out
    assert Path("again.peer").read_bytes() == Path(f"{SITE}.peer").read_bytes()
    assert site(config, "peers", "export", "--out", "no/where", "--json").code == 70
    assert site(config, "peers", "list").out.startswith(f"this site's key card: {result['fingerprint']}")


def test_two_cards_come_by_mail_and_are_confirmed_by_telephone(stage: Stage, config: Path) -> None:
    both = mailed(stage.folder, theirs(seed=7), theirs("hospital-c", 9))
    shown = site(config, "peers", "import", both).out
    assert "hospital-b: new here, not confirmed yet" in shown
    commands = [line for line in shown.splitlines() if line.startswith("  eigenveil-site")]
    wanted = ["eigenveil-site", "peers", "confirm", "hospital-c", "--config", str(config)]
    assert shlex.split(commands[1]) == wanted
    listed = site(config, "peers", "list", "--json")
    assert [row["fingerprint"] for row in listed.json["peers"]] == [None, None]
    assert DIGITS not in listed.out + shown, "what is to be heard is not there to be copied"
    wrong = site(config, "peers", "confirm", "hospital-b", "--fingerprint", OTHERS, "--json")
    assert (wrong.code, wrong.json["error"]) == (20, "identity")
    query = site(config, "peers", "confirm", "hospital-b", answer=f"Kim\n12345\n{DIGITS}\n")
    assert (query.code, "got 5 digits" in query.out) == (0, True), "too few digits are asked for again"
    (result,) = [row for row in site(config, "peers", "list", "--json").json["peers"] if row["by"]]
    assert (result["site"], result["status"], result["by"]) == ("hospital-b", "confirmed", "Kim")
    assert (result["fingerprint"], list(roster(stage).confirmed())) == (DIGITS, ["hospital-b"])
    again = site(config, "peers", "import", both, "--json").json["cards"]
    assert [(row["outcome"], row["status"]) for row in again] == [
        ("known", "confirmed"),
        ("known", "imported"),
    ]


def test_confirm_needs_a_terminal_and_ends_on_ctrl_c(stage: Stage, config: Path, monkeypatch: Patch) -> None:
    site(config, "peers", "import", mailed(stage.folder, theirs()))
    for words in ((), ("--json",)):
        assert site(config, "peers", "confirm", "hospital-b", *words).code == 2

    def pressed(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("click.termui.visible_prompt_func", pressed)
    assert site(config, "peers", "confirm", "hospital-b", answer="anything").code == 130
    assert roster(stage).confirmed() == {}


def test_a_change_shows_in_each_place_and_a_person_decides(stage: Stage, config: Path) -> None:
    one = knowing(stage, theirs(seed=7))
    one.mark_changed("hospital-b", theirs(seed=8).check().digest)
    check = check_row(config, "peers")
    assert (check["level"], "peers confirm hospital-b" in check["text"]) == ("fail", True)
    assert site(config, "check", "--json").code == 9
    shown = site(config, "peers", "list").out
    assert "changed: nothing is sent" in shown
    assert DIGITS not in shown
    again = site(config, "peers", "confirm", "hospital-b", "--fingerprint", DIGITS, "--by", "Kim")
    assert "Start the daemon again" in again.out
    assert list(one.confirmed()) == ["hospital-b"]
    assert site(config, "peers", "remove", "hospital-b", "--json").json == {
        "site": "hospital-b",
        "removed": True,
    }
    assert site(config, "peers", "remove", "hospital-b", "--json").json["error"] == "not-found"
    assert site(config, "peers", "confirm", "hospital-b", "--fingerprint", DIGITS, "--json").code == 8


def test_check_and_doctor_report_the_peer_status(stage: Stage, config: Path) -> None:
    def row(command: str, about: str = "peers") -> tuple[str, str]:
        rows = site(config, command, "--json").json["checks"]
        return next((one["level"], one["text"] + one["action"]) for one in rows if one["check"] == about)

    assert row("check") == ("ok", "no key card of this site or of others: the coordinator sees every answer")
    with config.open("a") as file:
        file.write('trust = ["secure-aggregation"]\n')
    assert row("doctor")[0] == "warn"
    assert "peers export" in row("check")[1], "it can answer nothing"
    own(stage)
    assert "peers import" in row("check")[1]
    knowing(stage, theirs()).import_cards(
        [theirs("hospital-c", 9)], own(stage).federation, own(stage), replacing=False
    )
    for command in ("check", "doctor"):
        level, text = row(command)
        assert (level, "1 confirmed, 1 not confirmed" in text, "confirm NAME" in text) == ("warn", True, True)
    roster(stage).remove("hospital-c")
    known = "cards of other sites: 1 confirmed, 0 not confirmed; site.toml allows trust = secure-aggregation"
    assert row("doctor") == ("ok", known)
    config.write_text(config.read_text().replace('trust = ["secure-aggregation"]\n', ""))
    assert "only masked studies are answered" in row("check")[1]
    key = stage.config.identity / "peer.key"
    key.chmod(0o644)
    assert "peer.key" in row("doctor", "permissions")[1]
    assert row("check")[0] == "fail"
    key.unlink()
    assert row("check")[0] == "warn", "a copy of the folder without its key"


ADA = analyst_card("ada", FEDERATION)


def filed(folder: Path, *cards: SignedAnalystKeyCard) -> Path:
    path = folder / "mail.analyst"
    path.write_bytes(cards_to_file(cards))
    return path


def analysts(config: Path, *words: object) -> Any:
    return site(config, "analysts", *words, "--json").json


def test_only_cards_of_analysts_of_this_federation_are_taken_in(stage: Stage, config: Path) -> None:
    elsewhere = filed(stage.folder, analyst_card("ada", "elsewhere"))
    assert analysts(config, "import", elsewhere)["error"] == Code.CONFLICT.value
    assert analysts(config, "import", mailed(stage.folder, theirs()))["error"] == Code.PROTOCOL.value
    assert site(config, "peers", "import", filed(stage.folder, ADA), "--json").code == 21
    twin = analyst_card("bob", FEDERATION, analyst_key("ada"))
    both = site(config, "analysts", "import", filed(stage.folder, ADA, twin), "--json")
    assert "has the keys of ada" in both.json["message"]
