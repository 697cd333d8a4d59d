"""A site's key for a masked study is durable while the study runs, and then nowhere on the disk [R36]."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.key_cards import SiteKeyCard
from eigenveil_client.site.roster.peers import SiteKeys
from eigenveil_client.site.state.store import open_database
from eigenveil_client.site.state.study_keys import StudyKeys

PLAN, OTHER = "ab" * 32, "cd" * 32


def site_keys(seed: int) -> SiteKeys:
    signing = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    public = signing.public_key().public_bytes_raw()
    return SiteKeys(signing=signing, card=SiteKeyCard(federation="f", site="anna", signing=public))


def on_disk(folder: Path, secret: bytes) -> bool:
    return any(secret in path.read_bytes() for path in folder.iterdir())


def test_a_key_stays_the_same_until_its_study_ends_and_is_then_overwritten(tmp_path: Path) -> None:
    anna = site_keys(1)
    with closing(open_database(tmp_path / "state.db")) as database:
        keys = StudyKeys(database)
        own, other = keys.get_or_make(PLAN, anna), keys.get_or_make(OTHER, anna)
        secret = own.private.private_bytes_raw()
        assert own.stated.agreement != other.stated.agreement
        assert keys.get_or_make(PLAN, anna).signed == own.signed
        assert on_disk(tmp_path, secret)
        with database.transaction() as change:
            keys.delete(PLAN, change)
        assert database.empty_log()
        assert not keys.has(PLAN)
        assert not on_disk(tmp_path, secret)
        assert keys.get_or_make(OTHER, anna).signed == other.signed
        assert keys.get_or_make(PLAN, anna).signed != own.signed


def test_a_new_card_gets_a_new_key_and_the_old_one_is_deleted(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "state.db")) as database:
        keys = StudyKeys(database)
        first, second = (keys.get_or_make(PLAN, site_keys(seed)) for seed in (1, 2))
        assert first.stated.card != second.stated.card
        assert len(database.rows("SELECT * FROM study_keys")) == 1
        database.empty_log()
        assert not on_disk(tmp_path, first.private.private_bytes_raw())
