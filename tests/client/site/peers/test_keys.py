"""A site's own keys are made once, by nobody else, and stay on its machine. [R28]"""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil.key_cards import SignedSiteKeyCard, SiteKeyCard
from eigenveil_client.site.roster.peers import NAME, PEERS, SiteKeys, has_keys
from eigenveil_client.site.roster.pins import Confirmation, ImportOutcome
from eigenveil_client.site.roster.roster import Roster, RosterUnusable
from tests.client.site.peers.people import AT, knowing, own, roster, theirs
from tests.client.site.support import FEDERATION, SITE, Log, Patch, Stage, store_identity
from tests.core.secure_aggregation.cards import signing
from tests.support import refused


def test_a_key_is_made_once_and_stays_secret(stage: Stage) -> None:
    folder = stage.config.identity
    assert not has_keys(folder)
    with refused(Code.NOT_FOUND, "peers export --config"):
        SiteKeys.read(folder)
    here = SiteKeys.make(folder)
    assert (here.card.site, here.card.federation, here.signed.check()) == (SITE, FEDERATION, here.card)
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600
    assert SiteKeys.make(folder).signed == SiteKeys.read(folder).signed == here.signed
    secret = json.loads((folder / NAME).read_bytes())["signing"]
    assert secret not in f"{here!r} {here.card!r} {here.signed!r}"
    assert bytes.fromhex(secret) not in here.signed.signed_json + here.signed.signature


OLD, NEW = theirs(seed=7), theirs(seed=8)


def test_card_is_confirmed_once_a_person_enters_its_fingerprint(stage: Stage) -> None:
    one = roster(stage)
    assert (one.confirmed(), one.content().pins) == ({}, {})
    assert one.import_cards([OLD], own(stage).federation, own(stage), replacing=False) == {
        "hospital-b": ImportOutcome.NEW
    }
    assert one.confirmed() == {}
    with refused(Code.IDENTITY, "nothing was confirmed"):
        one.confirm("hospital-b", NEW.check().fingerprint, "Kim")
    with refused(Code.IDENTITY, "of this site's own key card", "nothing was confirmed"):
        one.confirm("hospital-b", own(stage).fingerprint, "Kim")
    assert one.confirmed() == {}
    one.confirm("hospital-b", OLD.check().fingerprint.replace(" ", "-"), "Kim")
    again = Roster(PEERS, stage.config.identity)
    assert again.confirmed() == {"hospital-b": OLD.check()}
    assert again.content().pins["hospital-b"].confirmed == Confirmation(by="Kim", at=AT)
    assert stat.S_IMODE((stage.config.identity / PEERS.file).stat().st_mode) == 0o600
    assert again.import_cards([OLD], own(stage).federation, own(stage), replacing=True) == {
        "hospital-b": ImportOutcome.KNOWN
    }
    assert again.confirmed() == {"hospital-b": OLD.check()}, "the same file again changes nothing"


def test_confirmed_card_is_replaced_only_by_a_person_and_stored(stage: Stage) -> None:
    one = knowing(stage, OLD)
    with refused(
        Code.CONFLICT, "another key card of hospital-b", "Telephone", "--replace", "nothing was imported"
    ):
        one.import_cards([theirs("hospital-c", 3), NEW], own(stage).federation, own(stage), replacing=False)
    assert list(one.content().pins) == ["hospital-b"], "all or none"
    assert one.import_cards([NEW], own(stage).federation, own(stage), replacing=True) == {
        "hospital-b": ImportOutcome.REPLACED
    }
    assert one.confirmed() == {}
    one.check_unchanged()
    one.confirm("hospital-b", NEW.check().fingerprint, "Lou")
    assert one.confirmed() == {"hospital-b": NEW.check()}
    one.remove("hospital-b")
    assert one.confirmed() == {}
    remaining = Roster(PEERS, stage.config.identity).content().earlier
    assert [(each.signed, each.until, each.confirmed) for each in remaining] == [
        (OLD, AT, Confirmation(by="Kim", at=AT)),
        (NEW, AT, Confirmation(by="Lou", at=AT)),
    ]
    one.import_cards([OLD], own(stage).federation, own(stage), replacing=False)
    assert one.confirmed() == {}, "what was removed and comes again is confirmed again"


def with_key_of(card: SiteKeyCard) -> SignedSiteKeyCard:
    """Return another site's card with the same key, which only a copied folder can sign."""
    return SignedSiteKeyCard.of(replace(card, site="hospital-c"), signing(7).sign)


def test_what_a_mail_can_get_wrong_is_refused(stage: Stage) -> None:
    one, mine = knowing(stage, OLD), own(stage)
    wrong = {
        "of federation elsewhere, and this site is in": [theirs(federation="elsewhere")],
        f"this site's name, {SITE}": [theirs(SITE)],
        "two key cards of hospital-c": [theirs("hospital-c", 1), theirs("hospital-c", 2)],
        "the keys of hospital-b: one folder was copied": [with_key_of(OLD.check())],
    }
    before = one.content()
    for words, cards in wrong.items():
        for replacing in (False, True):
            with refused(Code.CONFLICT, words, "nothing was imported"):
                one.import_cards(
                    [theirs("hospital-d", 4), *cards], mine.federation, mine, replacing=replacing
                )
    assert one.content() == before


def test_this_site_s_own_card_among_others_is_passed_over(stage: Stage) -> None:
    one, mine = roster(stage), SiteKeys.make(stage.config.identity)
    assert one.import_cards([mine.signed, OLD], mine.card.federation, mine.card, replacing=False) == {
        SITE: ImportOutcome.OWN,
        "hospital-b": ImportOutcome.NEW,
    }
    assert list(one.content().pins) == ["hospital-b"]


def test_card_change_is_alarmed_stored_and_decided_by_a_person(stage: Stage, caplog: Log) -> None:
    one = knowing(stage, OLD)
    one.mark_changed("hospital-b", OLD.check().digest)
    one.mark_changed("hospital-z", NEW.check().digest)
    one.check_unchanged()
    assert "peer-key-changed" not in caplog.text
    one.mark_changed("hospital-b", NEW.check().digest)
    assert f"peer-key-changed site=hospital-b here={OLD.check().digest[:12]}" in caplog.text
    later = Roster(PEERS, stage.config.identity)
    assert (list(later.changed()), later.confirmed()) == (["hospital-b"], {})
    with refused(Code.CONFLICT, "peers confirm hospital-b", "--replace", "peers remove hospital-b"):
        later.check_unchanged()
    with refused(Code.IDENTITY, "not the digits"):
        later.confirm("hospital-b", NEW.check().fingerprint, "Kim")
    later.import_cards([NEW], own(stage).federation, own(stage), replacing=True)
    assert list(later.changed()) == ["hospital-b"], "a file decides nothing"
    later.confirm("hospital-b", NEW.check().fingerprint, "Kim")
    later.check_unchanged()
    assert later.confirmed() == {"hospital-b": NEW.check()}


def test_commands_at_the_same_moment_lose_nothing(stage: Stage) -> None:
    one, mine = roster(stage), own(stage)
    files = [[theirs(f"h-{number}", 100 + number)] for number in range(12)]
    with ThreadPoolExecutor(6) as pool:  # each waits for the lock as another process would
        list(pool.map(lambda cards: one.import_cards(cards, mine.federation, mine, replacing=False), files))
    assert len(one.content().pins) == 12


@pytest.mark.parametrize("damage", ["", "{}", '{"peers": 7, "earlier": []}', "hospital-c", "0", "null"])
def test_a_damaged_roster_is_refused_and_not_replaced(stage: Stage, damage: str) -> None:
    one = knowing(stage, OLD)
    path = stage.config.identity / PEERS.file
    if damage in ("hospital-c", "0"):  # somebody edited a name, or a digit of a key
        site = OLD.check().site if damage == "hospital-c" else OLD.check().signing.hex()[:8]
        damage = path.read_text().replace(site, damage if damage == "hospital-c" else "0" * 8)
    path.write_text(damage)
    for use in (one.confirmed, one.check_unchanged, lambda: one.mark_changed("hospital-b", "0" * 64)):
        with refused(Code.BAD_CONFIG, "damaged. Restore the file from the backup"):
            use()
    assert path.read_text() == damage


def test_a_file_that_others_can_read_is_not_used(stage: Stage) -> None:
    one = knowing(stage, OLD)
    (stage.config.identity / PEERS.file).chmod(0o644)
    with pytest.raises(RosterUnusable, match="chmod 600"):
        one.confirmed()


def test_a_power_cut_while_it_is_written_leaves_what_was(stage: Stage, monkeypatch: Patch) -> None:
    one = knowing(stage, OLD)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", full)
        with refused(Code.STORAGE, "make room"):
            one.mark_changed("hospital-b", NEW.check().digest)
    assert one.confirmed() == {"hospital-b": OLD.check()}
    assert json.loads((stage.config.identity / PEERS.file).read_bytes())["earlier"] == []


def test_the_first_card_that_contradicted_a_confirmed_one_stays_as_evidence(stage: Stage) -> None:
    one = knowing(stage, OLD)
    for number in (8, 9):
        one.mark_changed("hospital-b", theirs("hospital-b", number).check().digest)
    conflict = one.content().pins["hospital-b"].conflict
    assert conflict is not None
    assert conflict.digest == theirs("hospital-b", 8).check().digest


def test_only_a_site_has_a_card(stage: Stage, tmp_path: Path) -> None:
    analyst = tmp_path / "analyst"
    store_identity(stage.authority, analyst, "127.0.0.1:1", uri=f"eigenveil://{FEDERATION}/analyst/ada")
    for folder in (analyst, tmp_path / "nothing"):
        with refused(Code.BAD_CONFIG, "no site's identity", "enrol"):
            SiteKeys.make(folder)
    assert not has_keys(analyst)
