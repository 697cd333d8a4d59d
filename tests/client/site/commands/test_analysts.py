"""Commands with which a site's people pin analysts' keys, beside a running daemon. [R30]"""

from __future__ import annotations

from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil.key_cards.key_card import cards_to_file
from eigenveil.key_cards.owners import SignedAnalystKeyCard
from eigenveil_client.site.roster.analysts import ANALYSTS
from eigenveil_client.site.roster.roster import Roster
from tests.client.site.command_line import site, written
from tests.client.site.peers.people import mailed, theirs
from tests.client.site.support import FEDERATION, Stage
from tests.support import analyst_card, analyst_key

ADA, OTHER = analyst_card("ada", FEDERATION), analyst_card("ada", FEDERATION, analyst_key("eve"))
DIGITS = ADA.check().fingerprint


@pytest.fixture
def config(stage: Stage) -> Path:
    return written(stage)


def filed(folder: Path, *cards: SignedAnalystKeyCard) -> Path:
    path = folder / "mail.analyst"
    path.write_bytes(cards_to_file(cards))
    return path


def checked(config: Path) -> tuple[str, str]:
    """What `check` says of analysts' keys."""
    (row,) = [
        one for one in site(config, "check", "--json").json["checks"] if one["check"] == "analysts' keys"
    ]
    return row["level"], row["text"]


def test_a_card_is_taken_in_confirmed_by_its_digits_listed_and_removed(stage: Stage, config: Path) -> None:
    assert checked(config)[0] == "warn"
    told = site(config, "analysts", "import", filed(stage.folder, ADA), "--json").json
    assert told["cards"] == [{"analyst": "ada", "outcome": "new", "standing": "imported"}]
    listed = site(config, "analysts", "list", "--json").json
    assert (listed["unsigned"], listed["analysts"][0]["fingerprint"]) == ("answered", None)
    wrong = site(config, "analysts", "confirm", "ada", "--fingerprint", OTHER.check().fingerprint, "--json")
    assert wrong.json["error"] == Code.IDENTITY.value
    right = site(config, "analysts", "confirm", "ada", "--fingerprint", DIGITS, "--by", "Kim", "--json")
    assert (right.json["standing"], right.json["by"]) == ("confirmed", "Kim")
    listed = site(config, "analysts", "list", "--json").json
    assert (listed["unsigned"], listed["analysts"][0]["fingerprint"]) == ("refused", DIGITS)
    assert DIGITS in site(config, "analysts", "list").out
    assert checked(config)[0] == "ok"
    again = site(config, "analysts", "import", filed(stage.folder, OTHER), "--json")
    assert again.json["error"] == Code.CONFLICT.value
    assert site(config, "analysts", "remove", "ada", "--json").json == {"analyst": "ada", "removed": True}
    listed = site(config, "analysts", "list", "--json").json
    assert (listed["unsigned"], listed["analysts"]) == ("refused", []), "removal opens nothing"
    assert [one["analyst"] for one in listed["earlier"]] == ["ada"]




def test_a_key_that_changed_fails_the_check_until_a_person_decides(stage: Stage, config: Path) -> None:
    stage.know_analyst()
    Roster(ANALYSTS, stage.config.identity).mark_changed("ada", OTHER.check().digest)
    level, text = checked(config)
    assert level == "fail"
    assert "eigenveil-site analysts confirm ada" in text
    site(config, "analysts", "confirm", "ada", "--fingerprint", DIGITS, "--by", "Kim", "--json")
    assert checked(config)[0] == "ok"


def test_only_cards_of_analysts_of_this_federation_are_taken_in(stage: Stage, config: Path) -> None:
    elsewhere = filed(stage.folder, analyst_card("ada", "elsewhere"))
    assert site(config, "analysts", "import", elsewhere, "--json").json["error"] == Code.CONFLICT.value
    peers = mailed(stage.folder, theirs())
    assert site(config, "analysts", "import", peers, "--json").json["error"] == Code.PROTOCOL.value
    assert site(config, "peers", "import", filed(stage.folder, ADA), "--json").code == 21
    twin = analyst_card("bob", FEDERATION, analyst_key("ada"))
    both = site(config, "analysts", "import", filed(stage.folder, ADA, twin), "--json")
    assert "has the keys of ada" in both.json["message"]
