"""A site's own keys are made once, by nobody else, and stay on its machine. [R28]"""

from __future__ import annotations

import json
import shutil
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil_client.site.roster.peers import NAME, SiteKeys, has_keys
from eigenveil_common.files import write_secret
from tests.client.connection.test_identity import Enrolment, enrolling
from tests.client.site.support import FEDERATION, SITE, Authority, Stage, store_identity
from tests.support import refused


def test_keys_are_made_once_and_two_sites_share_a_secret(stage: Stage, tmp_path: Path) -> None:
    folder = stage.config.identity
    assert not has_keys(folder)
    with refused(Code.NOT_FOUND, "peers export --config"):
        SiteKeys.read(folder)
    here = SiteKeys.make(folder)
    assert (here.card.site, here.card.federation) == (SITE, FEDERATION)
    assert here.signed.check() == here.card
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600
    assert SiteKeys.make(folder).signed == SiteKeys.read(folder).signed == here.signed
    store_identity(
        stage.authority, tmp_path / "there", "127.0.0.1:1", uri=f"eigenveil://{FEDERATION}/site/hospital-b"
    )
    there = SiteKeys.make(tmp_path / "there")
    assert here.secret_with(there.card) == there.secret_with(here.card)
    assert len(here.secret_with(there.card)) == 32
    held = json.loads((folder / NAME).read_bytes())
    secret = held["agreement"], held["signing"]
    assert not any(one in f"{here!r} {here.card!r} {here.signed!r}" for one in secret)
    assert not any(bytes.fromhex(one) in here.signed.said + here.signed.signature for one in secret)


def test_commands_at_the_same_moment_make_one_card(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    def slowly(path: Path, data: bytes) -> None:
        written.append(data)
        time.sleep(0.05)
        write_secret(path, data)

    monkeypatch.setattr("eigenveil_client.connection.identity_files.write_secret", slowly)
    with ThreadPoolExecutor(3) as pool:  # each waits for the lock as another process would
        assert len(set(pool.map(lambda folder: SiteKeys.make(folder).card, [stage.config.identity] * 3))) == 1
    assert len(written) == 1


def test_a_new_certificate_leaves_keys_and_peers_alone(tmp_path: Path) -> None:
    servicer = Enrolment(Authority())
    enrolling(tmp_path / "identity", servicer)
    before = SiteKeys.make(tmp_path / "identity").signed
    (tmp_path / "identity" / "peers.json").write_text("as it was")
    enrolling(tmp_path / "identity", servicer, token="right too")
    assert SiteKeys.read(tmp_path / "identity").signed == before
    assert (tmp_path / "identity" / "peers.json").read_text() == "as it was"


def test_keys_that_were_copied_to_another_site_are_not_used(stage: Stage, tmp_path: Path) -> None:
    SiteKeys.make(stage.config.identity)
    other = tmp_path / "other"
    store_identity(stage.authority, other, "127.0.0.1:1", uri=f"eigenveil://{FEDERATION}/site/hospital-b")
    shutil.copy2(stage.config.identity / NAME, other)
    for use in (SiteKeys.read, SiteKeys.make):
        with refused(Code.BAD_CONFIG, f"belongs to site {SITE}", "must not share keys", "elsewhere"):
            use(other)


@pytest.mark.parametrize("damage", [b"", b"\xff", b"{}", b"[]", b'{"federation": 1, "site": 2}', None])
def test_damaged_keys_are_told_and_not_replaced(stage: Stage, damage: bytes | None) -> None:
    path = stage.config.identity / NAME
    SiteKeys.make(stage.config.identity)
    path.write_bytes(path.read_bytes()[:-9] if damage is None else damage)
    before = path.read_bytes()
    for use in (SiteKeys.read, SiteKeys.make):
        with refused(Code.BAD_CONFIG, "damaged", "restore it from a backup"):
            use(stage.config.identity)
    assert path.read_bytes() == before


def test_keys_that_others_can_read_are_not_used(stage: Stage) -> None:
    SiteKeys.make(stage.config.identity)
    (stage.config.identity / NAME).chmod(0o640)
    with refused(Code.BAD_CONFIG, "chmod 600"):
        SiteKeys.read(stage.config.identity)


def test_only_a_site_has_a_card(stage: Stage, tmp_path: Path) -> None:
    analyst = tmp_path / "analyst"
    store_identity(stage.authority, analyst, "127.0.0.1:1", uri=f"eigenveil://{FEDERATION}/analyst/ada")
    for folder in (analyst, tmp_path / "nothing"):
        with refused(Code.BAD_CONFIG, "no site's identity", "enrol"):
            SiteKeys.make(folder)
    assert not has_keys(analyst)
