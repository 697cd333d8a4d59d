"""An analyst's signing key is made once, on one machine, and for one analyst. [R30]"""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil_client.analyst.profile import KEY_FILE, SigningKey, key_exists
from tests.client.commands import eigenveil
from tests.client.site.support import FEDERATION, Authority, store_identity
from tests.support import Capture, refused


def profile(folder: Path, name: str = "ada", role: str = "analyst") -> Path:
    """A folder of somebody who enrolled before there were signing keys."""
    store_identity(Authority(), folder, "127.0.0.1:1", uri=f"eigenveil://{FEDERATION}/{role}/{name}")
    return folder


@pytest.fixture
def ada(tmp_path: Path) -> Path:
    return profile(tmp_path / "ada")


def test_a_key_is_made_at_first_need_and_stays(ada: Path) -> None:
    assert not key_exists(ada)
    with ThreadPoolExecutor(3) as pool:
        first, *others = pool.map(SigningKey.make, [ada] * 3)
    assert key_exists(ada)
    assert {one.signed for one in others} == {first.signed} == {SigningKey.make(ada).signed}
    assert first.signed.check() == first.key_card
    assert (first.key_card.analyst, first.key_card.federation) == ("ada", FEDERATION)
    assert stat.S_IMODE((ada / KEY_FILE).stat().st_mode) == 0o600


def test_the_secret_is_in_nothing_that_is_shown_or_sent(ada: Path, tmp_path: Path, capsys: Capture) -> None:
    key_card = tmp_path / "ada.analyst"
    own = SigningKey.make(ada)
    assert eigenveil(["key", "export", "--out", str(key_card), "--profile", str(ada)]) == 0
    assert eigenveil(["key", "show", "--profile", str(ada), "--json"]) == 0
    secret = json.loads((ada / KEY_FILE).read_text())["signing"]
    shown = f"{capsys.readouterr()} {key_card.read_text()} {own!r}"
    assert secret not in shown
    assert bytes.fromhex(secret) not in own.signed.signed_json + own.signed.signature


def test_a_key_that_was_copied_to_another_analyst_is_not_used(ada: Path, tmp_path: Path) -> None:
    SigningKey.make(ada)
    bea = profile(tmp_path / "bea", "bea")
    shutil.copy2(ada / KEY_FILE, bea)
    with refused(
        Code.BAD_CONFIG, "to analyst ada", "must not share keys", "elsewhere", "eigenveil key export"
    ):
        SigningKey.make(bea)


@pytest.mark.parametrize("damage", [
    lambda data: b"", lambda data: b"\xff", lambda data: b"{}", lambda data: b"[]", lambda data: data[:-9],
    lambda data: b'{"federation": 1, "analyst": 2}', lambda data: data.replace(b'ing": "', b'ing": "00'),
])  # fmt: skip
def test_a_damaged_key_is_refused_and_not_replaced(ada: Path, damage: Callable[[bytes], bytes]) -> None:
    path = ada / KEY_FILE
    SigningKey.make(ada)
    before = damage(path.read_bytes())
    path.write_bytes(before)
    with refused(Code.BAD_CONFIG, "damaged", "restore it from a backup", "--replace"):
        SigningKey.make(ada)
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_not_used(ada: Path, mode: int) -> None:
    SigningKey.make(ada)
    (ada / KEY_FILE).chmod(mode)
    with refused(Code.BAD_CONFIG, "chmod 600"):
        SigningKey.make(ada)


@pytest.mark.parametrize("there", [True, False], ids=["a link to a key", "a link to nothing"])
def test_a_linked_key_is_neither_followed_nor_replaced(ada: Path, tmp_path: Path, there: bool) -> None:
    if there:
        SigningKey.make(ada)
        (ada / KEY_FILE).rename(tmp_path / "elsewhere")
    (ada / KEY_FILE).symlink_to(tmp_path / "elsewhere")
    with refused(Code.BAD_CONFIG, "is a link, but a private key must be a file"):
        SigningKey.make(ada)
    assert (ada / KEY_FILE).is_symlink()
    assert (tmp_path / "elsewhere").exists() is there


@pytest.mark.parametrize("role", ["site", "operator"])
def test_only_an_analyst_has_a_signing_key(tmp_path: Path, role: str) -> None:
    for folder in (profile(tmp_path / "other", "other", role), tmp_path / "nothing"):
        with refused(Code.BAD_CONFIG, "no analyst's identity", "Enrol"):
            SigningKey.make(folder)


def test_doctor_checks_the_signing_key(ada: Path, capsys: Capture) -> None:
    def result() -> dict[str, str]:
        eigenveil(["doctor", "--profile", str(ada), "--json"])
        checks = json.loads(capsys.readouterr().out)["checks"]
        return next(one for one in checks if one["check"] == "signing key")

    assert (result()["level"], key_exists(ada)) == ("warn", False), "a check makes no key"
    key_card = SigningKey.make(ada).key_card
    assert (result()["level"], key_card.fingerprint in result()["text"]) == ("ok", True)
    (ada / KEY_FILE).write_text("{}")
    assert result()["level"] == "fail"
