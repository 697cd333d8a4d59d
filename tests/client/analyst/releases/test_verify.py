"""`eigenveil verify` and `eigenveil report`: an intact release by the right key passes. [R31]"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eigenveil import Simulation, simulate
from eigenveil.errors import Code
from eigenveil.reporting.document import signed_release, unsigned_release
from eigenveil.reporting.trust import CENTRAL
from eigenveil.reporting.verify import load_release
from eigenveil.signatures import formatted
from eigenveil.study_authorization import ReleaseAnalyst
from eigenveil_client.analyst.profile import SigningKey
from eigenveil_client.analyst.release_files import signed_by_current_key, write_result
from eigenveil_client.connection.identity import IDENTITY_FORMAT
from tests.client.commands import eigenveil, ran
from tests.client.site.support import FEDERATION, Authority, store_identity
from tests.support import Capture, Patch, a_study, changed_member, refused

BAD_RELEASE, UNKNOWN = 13, 14


@cache
def signing_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def signed(run: Simulation, **changes: Any) -> bytes:
    public = signing_key().public_key().public_bytes_raw()
    document = run.document | changes
    return signed_release(document, run.result, sign=signing_key().sign, public_key=public)


@cache
def small_run(name: str = "tiny") -> Simulation:
    parts = {name: np.random.default_rng(1).uniform(0, 100, (60, 3)) for name in ("north", "south")}
    return simulate(a_study(name=name), parts, seed=1)


def small_release(name: str = "tiny") -> bytes:
    return signed(small_run(name))


@pytest.fixture(autouse=True)
def _no_profile(tmp_path: Path, unpainted: None, monkeypatch: Patch) -> None:
    monkeypatch.setenv("EIGENVEIL_PROFILE", str(tmp_path / "nobody"))


@pytest.fixture
def release(tmp_path: Path) -> Path:
    path = tmp_path / "release.zip"
    path.write_bytes(small_release())
    return path


def key_hex() -> str:
    return signing_key().public_key().public_bytes_raw().hex()


def test_a_release_of_an_unknown_key_does_not_pass(release: Path, capfd: Capture) -> None:
    code, value = ran(capfd, "verify", str(release))
    assert (code, value["intact"], value["key_checked"]) == (UNKNOWN, True, False)
    assert (value["public_key"], value["private"]) == (key_hex(), False)
    assert eigenveil(["verify", str(release)]) == UNKNOWN
    out = " ".join(capfd.readouterr().out.split())
    assert ("NOT VERIFIED" in out, "--key" in out, "Intact" in out) == (True, True, False)
    assert eigenveil(["verify", str(release), "--any-key"]) == 0, "and it says the same"
    assert "NOT VERIFIED" in " ".join(capfd.readouterr().out.split())
    assert eigenveil(["verify", str(release), "--any-key", "--key", key_hex()]) == 2
    assert eigenveil(["verify", str(release), "--key", key_hex()]) == 0
    assert "Intact: tiny of federation simulation" in " ".join(capfd.readouterr().out.split())


def test_a_release_of_another_format_is_named(release: Path, capfd: Capture) -> None:
    run = small_run()
    sealed = signed(run, format="eigenveil-release/1")
    for data, words in (
        (sealed, "has the format 'eigenveil-release/1', and this version reads"),
        (changed_member(sealed, "release.json", b"tiny", b"tinx"), "not an intact"),
        (sealed + b" ", "not an intact"),
        (unsigned_release(run.document, run.result), "has no signature"),
    ):
        release.write_bytes(data)
        code, value = ran(capfd, "verify", str(release), "--key", key_hex())
        assert (code, words in value["message"]) == (BAD_RELEASE, True)


@pytest.mark.parametrize("stated", ["nobody sees a site's totals", CENTRAL])
def test_trust_is_shown_by_the_plan_and_not_by_the_release(
    stated: str, release: Path, capfd: Capture
) -> None:
    release.write_bytes(signed(small_run(), trust=stated))
    code, value = ran(capfd, "verify", str(release), "--key", key_hex())
    assert (code, value["trust"].startswith(CENTRAL), "nobody sees" in value["trust"]) == (0, True, False)
    assert ("STATES IT DIFFERENTLY" in value["trust"]) == (stated != CENTRAL)


def test_the_key_may_be_given_as_text_or_file(release: Path, tmp_path: Path, capfd: Capture) -> None:
    (tmp_path / "key.hex").write_text(f"\ufeff{key_hex()}\n")
    trusted = Authority().trusting(release_key=bytes.fromhex(key_hex()))
    (tmp_path / "authorities.json").write_bytes(trusted.to_json())
    for key in (key_hex(), key_hex().upper(), str(tmp_path / "key.hex"), str(tmp_path / "authorities.json")):
        code, value = ran(capfd, "verify", str(release), "--key", key)
        assert (code, value["key_checked"]) == (0, True)


def test_a_private_key_or_none_is_refused(release: Path, tmp_path: Path, capfd: Capture) -> None:
    key, path, private = signing_key(), tmp_path / "release.key", "holds a private key"
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for content, message in ((key.private_bytes_raw(), private), (pem, private), (None, "neither a key")):
        path.unlink() if content is None else path.write_bytes(content)
        code, value = ran(capfd, "verify", str(release), "--key", str(path))
        assert (code, value["error"], message in value["message"]) == (2, "bad-argument", True)


def test_the_profile_key_verifies_a_release(
    release: Path, tmp_path: Path, monkeypatch: Patch, capfd: Capture
) -> None:
    def enrolled(federation: str, key: str) -> None:
        about = formatted(IDENTITY_FORMAT, {"identity": f"eigenveil://{federation}/analyst/ada"})
        (tmp_path / "identity.json").write_text(json.dumps(about))
        trusted = Authority().trusting(federation=federation, release_key=bytes.fromhex(key))
        (tmp_path / "authorities.json").write_bytes(trusted.to_json())

    monkeypatch.setenv("EIGENVEIL_PROFILE", str(tmp_path))
    query = ["verify", str(release)]
    assert ran(capfd, *query)[0] == UNKNOWN
    enrolled("elsewhere", "00" * 32)
    assert ran(capfd, *query)[0] == UNKNOWN
    code, value = ran(capfd, *query, "--profile", str(tmp_path))
    assert (code, "holds no identity of federation simulation" in value["message"]) == (2, True)
    enrolled("simulation", key_hex())
    assert ran(capfd, *query)[1]["key_checked"] is True
    assert eigenveil(query) == 0
    assert "signed by your profile's key of this federation" in capfd.readouterr().out
    enrolled("simulation", "00" * 32)
    code, value = ran(capfd, *query)
    assert (code, "signed by another key" in value["message"]) == (BAD_RELEASE, True)
    page = tmp_path / "report.html"
    assert (eigenveil(["report", str(release), "--out", str(page)]), page.exists()) == (BAD_RELEASE, False)
    assert ran(capfd, *query, "--key", key_hex())[0] == 0


def test_no_flipped_byte_passes(release: Path) -> None:
    intact = small_release()
    step = max(1, len(intact) // 150)
    for place in {*range(0, len(intact), step), 0, len(intact) - 1}:
        for flip in (0x01, 0x20, 0x80):
            changed = bytearray(intact)
            changed[place] ^= flip
            release.write_bytes(changed)
            with refused(Code.BAD_RELEASE):
                load_release(release.read_bytes())


def test_the_report_needs_an_intact_release(release: Path, tmp_path: Path, capfd: Capture) -> None:
    page = tmp_path / "page.html"
    code, value = ran(capfd, "report", str(release), "--out", str(page))
    assert (code, value) == (0, {"report": str(page), "key_checked": False})
    assert key_hex() in page.read_text()
    release.write_bytes(changed_member(small_release(), "release.json", b"tiny", b"tinx"))
    assert ran(capfd, "report", str(release), "--out", str(tmp_path / "other.html"))[0] == BAD_RELEASE
    assert not (tmp_path / "other.html").exists()


def test_a_result_replaces_its_own_release_only(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    for _ in range(2):
        digest = write_result(small_release(), folder).document["plan_digest"][:12]
    release = folder / "release.zip"
    with refused(Code.CONFLICT, f"{release} is the release of another study, tiny ({digest})"):
        write_result(small_release("other"), folder)
    assert release.read_bytes() == small_release()
    release.write_text("mine")
    with refused(Code.CONFLICT, "is not an intact release. Name another folder with --out"):
        write_result(small_release(), folder)
    assert release.read_text() == "mine"


def release_analyst(analyst: str, fingerprint: str, *, checked: bool = True) -> ReleaseAnalyst:
    return ReleaseAnalyst(analyst=analyst, key_card="", fingerprint=fingerprint, text="", checked=checked)


def test_a_release_in_ones_own_name_needs_ones_own_key(tmp_path: Path) -> None:
    store_identity(Authority(), tmp_path, "127.0.0.1:1", uri=f"eigenveil://{FEDERATION}/analyst/ada")
    assert signed_by_current_key(release_analyst("ada", "12345"), FEDERATION, tmp_path) is None, (
        "no key, nothing to compare with"
    )
    digits = SigningKey.make(tmp_path).key_card.fingerprint
    assert signed_by_current_key(release_analyst("ada", digits), FEDERATION, tmp_path) is True
    assert signed_by_current_key(release_analyst("ada", digits[::-1]), FEDERATION, tmp_path) is False
    assert signed_by_current_key(release_analyst("ada", ""), FEDERATION, tmp_path) is False
    assert signed_by_current_key(release_analyst("bea", digits), FEDERATION, tmp_path) is None
    assert signed_by_current_key(release_analyst("ada", digits), "another", tmp_path) is None
    assert signed_by_current_key(release_analyst("ada", digits), FEDERATION, tmp_path / "nobody") is None


def test_unchecked_or_nameless_release_accuses_no_analyst(tmp_path: Path) -> None:
    store_identity(Authority(), tmp_path, "127.0.0.1:1", uri=f"eigenveil://{FEDERATION}/analyst/ada")
    SigningKey.make(tmp_path)
    assert signed_by_current_key(release_analyst("ada", "", checked=False), FEDERATION, tmp_path) is None
    assert signed_by_current_key(release_analyst("", ""), FEDERATION, tmp_path) is None
