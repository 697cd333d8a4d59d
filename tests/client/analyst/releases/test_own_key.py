"""A release in an analyst's own name is held against the analyst's own key. [R31]"""

from __future__ import annotations

from pathlib import Path

from eigenveil.study_authorization import ReleaseAnalyst
from eigenveil_client.analyst.profile import SigningKey
from eigenveil_client.analyst.release_files import CURRENT_KEY, signed_by_current_key
from tests.client.site.support import FEDERATION, Authority, store_identity


def asked(analyst: str, fingerprint: str, *, checked: bool = True) -> ReleaseAnalyst:
    return ReleaseAnalyst(analyst=analyst, key_card="", fingerprint=fingerprint, text="", checked=checked)


def test_a_release_in_ones_own_name_by_another_key_or_by_none_is_told(tmp_path: Path) -> None:
    store_identity(Authority(), tmp_path, "127.0.0.1:1", uri=f"eigenveil://{FEDERATION}/analyst/ada")
    assert signed_by_current_key(asked("ada", "12345"), FEDERATION, tmp_path) is None, (
        "no key, nothing to compare with"
    )
    digits = SigningKey.make(tmp_path).key_card.fingerprint
    assert signed_by_current_key(asked("ada", digits), FEDERATION, tmp_path) is True
    assert signed_by_current_key(asked("ada", digits[::-1]), FEDERATION, tmp_path) is False
    assert signed_by_current_key(asked("ada", ""), FEDERATION, tmp_path) is False
    assert signed_by_current_key(asked("bea", digits), FEDERATION, tmp_path) is None
    assert signed_by_current_key(asked("ada", digits), "another", tmp_path) is None
    assert signed_by_current_key(asked("ada", digits), FEDERATION, tmp_path / "nobody") is None


def test_nobody_is_accused_by_a_signature_that_was_not_checked_or_a_release_without_a_name(
    tmp_path: Path,
) -> None:
    store_identity(Authority(), tmp_path, "127.0.0.1:1", uri=f"eigenveil://{FEDERATION}/analyst/ada")
    SigningKey.make(tmp_path)
    assert signed_by_current_key(asked("ada", "", checked=False), FEDERATION, tmp_path) is None
    assert signed_by_current_key(asked("", ""), FEDERATION, tmp_path) is None


def test_the_words_say_which(tmp_path: Path) -> None:
    assert CURRENT_KEY[None] == ""
    assert "your present key" in CURRENT_KEY[True]
    assert "NOT signed by your present key" in CURRENT_KEY[False]
