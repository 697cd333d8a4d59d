"""[R19] An authority list is accepted only with enough signatures of the pinned list and a higher version."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509 import load_pem_x509_certificate

from eigenveil.errors import Code, PeerError
from eigenveil.numerics.encoding import canonical
from eigenveil.protocol.authorities import (
    AUTHORITIES_SIGNED,
    AuthorityList,
    ListedAuthority,
    SignedAuthorityList,
    list_from_json,
    update_authorities,
)
from tests.client.site.support import FEDERATION, Authority, signed
from tests.support import refused

NOW = datetime.now(UTC)
OLD, NEW, THIRD = Authority(), Authority(), Authority()
PINNED = OLD.trusting()
NEXT = OLD.trusting(NEW.listed, version=2)


def unchanged(one: AuthorityList, **changes: Any) -> AuthorityList:
    return replace(one, **changes)


def test_the_next_list_is_taken_and_a_chain_is_walked_even_if_all_but_the_last_have_expired() -> None:
    past = int((NOW - timedelta(days=400)).timestamp())
    two = unchanged(NEXT, expires=past)
    three = unchanged(NEW.trusting(version=3), expires=past, release_keys=PINNED.release_keys)
    four = NEW.trusting(THIRD.listed, version=4)
    chain = [signed(two, OLD), signed(three, OLD, NEW), signed(four, NEW)]
    assert update_authorities(PINNED, chain, NOW) == four
    assert update_authorities(PINNED, [], NOW) == PINNED
    with refused(Code.IDENTITY, "expired on"):
        update_authorities(PINNED, chain[:2], NOW)


@pytest.mark.parametrize(
    ("what", "sent"),
    [
        ("nobody signed it", [signed(NEXT)]),
        ("only those whom it adds signed it", [signed(NEXT, NEW)]),
        ("an earlier list is sent again", [signed(PINNED, OLD)]),
        ("one in between is left out", [signed(unchanged(NEXT, version=3), OLD)]),
        ("it is another federation's", [signed(unchanged(NEXT, federation="elsewhere"), OLD)]),
        ("it is its own successor", [signed(NEXT, OLD), signed(NEXT, OLD)]),
        ("one of two does not follow", [signed(NEXT, OLD), signed(THIRD.trusting(version=3), THIRD)]),
        ("the old ones sign, the new ones do not", [signed(NEW.trusting(version=2), OLD)]),
        ("a signature for something else", [SignedAuthorityList(
            list_json=NEXT.to_json(), signatures=(OLD.key.sign(NEXT.to_json(), ec.ECDSA(SHA256())),)
        )]),
        ("signatures without end", [SignedAuthorityList(
            list_json=NEXT.to_json(), signatures=signed(NEXT, OLD).signatures * 17
        )]),
    ],
)  # fmt: skip
def test_a_list_that_does_not_follow_is_refused(what: str, sent: list[SignedAuthorityList]) -> None:
    with pytest.raises(PeerError) as caught:
        update_authorities(PINNED, sent, NOW)
    assert caught.value.code is Code.IDENTITY, what


def test_the_threshold_of_the_pinned_list_decides_how_many_must_sign() -> None:
    stored = OLD.trusting(NEW.listed, THIRD.listed, threshold=2)
    following = unchanged(stored, version=2, threshold=1)
    for too_few in ((), (OLD,), (OLD, OLD)):
        with refused(Code.IDENTITY, "too few"):
            update_authorities(stored, [signed(following, *too_few)], NOW)
    for enough in ((OLD, THIRD), (NEW, OLD, THIRD)):
        assert update_authorities(stored, [signed(following, *enough)], NOW) == following
    raised = unchanged(stored, version=2, threshold=3)
    with refused(Code.IDENTITY, "too few"):
        update_authorities(stored, [signed(raised, OLD, NEW)], NOW)


def test_an_authority_that_only_issues_cannot_sign_a_list() -> None:
    root = replace(OLD.listed, issues=False)
    stored = unchanged(PINNED, authorities=(root, replace(NEW.listed, signs=False)))
    following = unchanged(stored, version=2)
    with refused(Code.IDENTITY, "too few"):
        update_authorities(stored, [signed(following, NEW)], NOW)
    assert update_authorities(stored, [signed(following, OLD)], NOW) == following
    assert OLD.certificate not in stored.issuers, "and who only signs certifies nobody"


@pytest.mark.parametrize("kind", [["ec", "-pkeyopt", "ec_paramgen_curve:P-384"], ["rsa:2048"]])
def test_openssl_signs_a_list_too(kind: list[str], tmp_path: Path) -> None:
    """So a key on a token or behind a passphrase can, where openssl reaches it."""
    key, root, draft = tmp_path / "root.key", tmp_path / "root.pem", tmp_path / "authorities.draft"
    subject = ["-subj", "/CN=Root", "-days", "9", "-nodes"]
    made = ["openssl", "req", "-x509", "-newkey", *kind, "-keyout", str(key), "-out", str(root), *subject]
    subprocess.run(made, check=True, capture_output=True)
    certificate = load_pem_x509_certificate(root.read_bytes())
    stored = OLD.trusting(ListedAuthority(certificate=certificate, issues=False, signs=True), threshold=2)
    following = unchanged(stored, version=2)
    draft.write_bytes(AUTHORITIES_SIGNED + following.to_json())
    words = ["openssl", "dgst", "-sha256", "-sign", str(key), str(draft)]
    theirs = subprocess.run(words, check=True, capture_output=True).stdout
    sent = signed(following, OLD)
    assert (
        update_authorities(stored, [replace(sent, signatures=(*sent.signatures, theirs))], NOW) == following
    )


def test_a_list_is_read_in_one_form_only() -> None:
    message = json.loads(NEXT.to_json())
    assert list_from_json(canonical(message)) == NEXT
    leaf = OLD.leaf(f"eigenveil://{FEDERATION}/site/a").certificate.decode()
    first = message["authorities"][0]
    wrong: list[Any] = [
        *(message | {name: value} for name, value in (
            ("version", 0), ("version", True), ("version", "2"), ("threshold", 3), ("threshold", 0),
            ("federation", "No Name"), ("expires", 2**53 - 1), ("release_keys", []),
            ("authorities", []), ("authorities", [first, first]), ("authorities", [first] * 9),
            ("authorities", [first | {"certificate": leaf}]), ("authorities", [first | {"issues": 1}]),
            ("authorities", [first | {"issues": False}]), ("authorities", [first | {"signs": False}]),
        )),
        [], None, {},
    ]  # fmt: skip
    for one in wrong:
        with pytest.raises(PeerError) as caught:
            list_from_json(canonical(one))
        assert caught.value.code is Code.PROTOCOL, one
    for data in (NEXT.to_json() + b" ", json.dumps(message).encode(), b"\xff", b"[" * 9999, b"0" * 99_999):
        with pytest.raises(PeerError):
            list_from_json(data)
