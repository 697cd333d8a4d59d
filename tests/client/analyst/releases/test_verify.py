"""`eigenveil verify` and `eigenveil report`: intact passes, anything else does not."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eigenveil import simulate
from eigenveil.errors import Code
from eigenveil.numerics.encoding import canonical
from eigenveil.reporting.document import signed_bundle
from eigenveil.reporting.trust import CENTRAL
from eigenveil.reporting.verify import load_release
from eigenveil_client.analyst.release_files import write_result
from tests.client.commands import eigenveil
from tests.client.site.support import Authority
from tests.support import a_study, refused

BAD_RELEASE, UNKNOWN = 13, 14


@cache
def signing_key() -> Ed25519PrivateKey:
    """One key for all tests."""
    return Ed25519PrivateKey.generate()


@cache
def small_release() -> bytes:
    """A signed release of a small study."""
    parts = {name: np.random.default_rng(1).uniform(0, 100, (60, 3)) for name in ("north", "south")}
    document = simulate(a_study(), parts, seed=1).document
    public = signing_key().public_key().public_bytes_raw()
    return signed_bundle(document, sign=signing_key().sign, public_key=public)


@pytest.fixture(autouse=True)
def _nobody(tmp_path: Path, unpainted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests has no profile."""
    monkeypatch.setenv("EIGENVEIL_PROFILE", str(tmp_path / "nobody"))


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """An intact release.json."""
    path = tmp_path / "release.json"
    path.write_bytes(small_release())
    return path


def key_hex() -> str:
    """The public key."""
    return signing_key().public_key().public_bytes_raw().hex()


def told(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    """Exit code and JSON answer."""
    code = eigenveil([*arguments, "--json"])
    return code, json.loads(capfd.readouterr().out.strip().splitlines()[-1])


def test_a_release_that_anybody_may_have_signed_does_not_pass(
    release: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, value = told(["verify", str(release)], capfd)
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


def test_a_release_of_the_first_version_is_named_as_one(
    release: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(small_release())["document"] | {"format": "eigenveil-release/1"}
    public = signing_key().public_key().public_bytes_raw()
    sealed = signed_bundle(document, sign=signing_key().sign, public_key=public)
    for data, words in (
        (sealed, "the format of eigenveil 0.1; verify it with that version"),
        (sealed.replace(b"tiny", b"tinx"), "not an intact"),
        (sealed + b" ", "not in canonical form"),
        (canonical(document), "bears no signature"),
    ):
        release.write_bytes(data)
        code, value = told(["verify", str(release), "--key", key_hex()], capfd)
        assert (code, words in value["message"]) == (BAD_RELEASE, True)


@pytest.mark.parametrize("stated", ["nobody sees a site's totals", CENTRAL])
def test_who_saw_totals_is_told_by_the_plan_and_not_by_what_the_release_says_of_itself(
    stated: str, release: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(small_release())["document"] | {"trust": stated}
    public = signing_key().public_key().public_bytes_raw()
    release.write_bytes(signed_bundle(document, sign=signing_key().sign, public_key=public))
    code, value = told(["verify", str(release), "--key", key_hex()], capfd)
    assert (code, value["trust"].startswith(CENTRAL), "nobody sees" in value["trust"]) == (0, True, False)
    assert ("STATES IT DIFFERENTLY" in value["trust"]) == (stated != CENTRAL)


def test_the_key_may_be_given_as_text_or_file(
    release: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key.hex").write_text(f"\ufeff{key_hex()}\n")
    (tmp_path / "authorities.json").write_text(json.dumps({"release_key": key_hex()}))
    for key in (key_hex(), key_hex().upper(), str(tmp_path / "key.hex"), str(tmp_path / "authorities.json")):
        code, value = told(["verify", str(release), "--key", key], capfd)
        assert (code, value["key_checked"]) == (0, True)


def test_a_private_key_is_not_asked_for(
    release: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    key = signing_key()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for content in (key.private_bytes_raw(), pem):
        (tmp_path / "release.key").write_bytes(content)
        code, value = told(["verify", str(release), "--key", str(tmp_path / "release.key")], capfd)
        assert (code, value["error"]) == (2, "bad-argument")
        assert "holds a private key" in value["message"]


def test_the_profile_knows_the_key_of_its_federation(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def enrolled(federation: str, key: str) -> None:
        about = {"identity": f"eigenveil://{federation}/analyst/ada"}
        (tmp_path / "identity.json").write_text(json.dumps(about))
        trusted = Authority().trusting(federation=federation, release_key=bytes.fromhex(key))
        (tmp_path / "authorities.json").write_bytes(trusted.to_json())

    monkeypatch.setenv("EIGENVEIL_PROFILE", str(tmp_path))
    query = ["verify", str(release)]
    assert told(query, capfd)[0] == UNKNOWN
    enrolled("elsewhere", "00" * 32)
    assert told(query, capfd)[0] == UNKNOWN
    code, value = told([*query, "--profile", str(tmp_path)], capfd)
    assert (code, "holds no identity of federation simulation" in value["message"]) == (2, True)
    enrolled("simulation", key_hex())
    assert told(query, capfd)[1]["key_checked"] is True
    assert eigenveil(query) == 0
    assert "signed by your profile's key of this federation" in capfd.readouterr().out
    enrolled("simulation", "00" * 32)
    code, value = told(query, capfd)
    assert (code, "signed by another key" in value["message"]) == (BAD_RELEASE, True)
    page = tmp_path / "report.html"
    assert (eigenveil(["report", str(release), "--out", str(page)]), page.exists()) == (BAD_RELEASE, False)
    assert told([*query, "--key", key_hex()], capfd)[0] == 0


def test_a_useless_key_is_explained(release: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, value = told(["verify", str(release), "--key", "hospital"], capfd)
    assert (code, value["error"]) == (2, "bad-argument")
    assert "neither a key of 64 hexadecimal digits nor a file" in value["message"]


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


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"document": 1, "signature": "00", "public_key": "00"}',
        b"not json",
    ],
)
def test_anything_else_is_no_release(
    content: bytes, release: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    release.write_bytes(content)
    code, value = told(["verify", str(release)], capfd)
    assert (code, value["error"]) == (BAD_RELEASE, "bad-release")


def test_another_spelling_of_the_same_is_refused(release: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bundle = json.loads(small_release())
    assert canonical(bundle) == small_release()
    for spelled in (json.dumps(bundle).encode(), small_release() + b"\n"):
        release.write_bytes(spelled)
        assert told(["verify", str(release)], capfd)[0] == BAD_RELEASE


def test_the_report_is_written_from_an_intact_release_only(
    release: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    code, value = told(["report", str(release), "--out", str(page)], capfd)
    assert (code, value) == (0, {"report": str(page), "key_checked": False})
    assert key_hex() in page.read_text()
    release.write_bytes(small_release().replace(b"tiny", b"tinx"))
    assert told(["report", str(release), "--out", str(tmp_path / "other.html")], capfd)[0] == BAD_RELEASE
    assert not (tmp_path / "other.html").exists()


def another_release() -> bytes:
    """A signed release of another study."""
    parts = {name: np.random.default_rng(1).uniform(0, 100, (60, 3)) for name in ("north", "south")}
    document = simulate(a_study(name="other"), parts, seed=1).document
    public = signing_key().public_key().public_bytes_raw()
    return signed_bundle(document, sign=signing_key().sign, public_key=public)


def test_a_result_replaces_its_own_release_only(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    for _ in range(2):
        written = write_result(small_release(), folder)
    digest = written.document["plan_digest"][:12]
    with refused(Code.CONFLICT, f"{written.release} is the release of another study, tiny ({digest})"):
        write_result(another_release(), folder)
    assert written.release.read_bytes() == small_release()
    written.release.write_text("mine")
    with refused(Code.CONFLICT, "is not an intact release. Name another folder with --out"):
        write_result(small_release(), folder)
    assert written.release.read_text() == "mine"


def test_a_report_does_not_replace_its_release(release: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, value = told(["report", str(release), "--out", str(release)], capfd)
    assert (code, value["error"]) == (9, "conflict")
    assert "would replace what it is made of" in value["message"]
    assert release.read_bytes() == small_release()
