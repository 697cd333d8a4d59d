"""One-time tokens become certificates; nothing of a request but its key is believed [R2]."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from eigenveil.errors import Code, RequestError
from eigenveil.identity import Role
from eigenveil.protocol.authorities import list_from_json
from eigenveil_server.pki.authority import Authority, new_key, requested_key
from eigenveil_server.pki.keys import release_public
from eigenveil_server.pki.registry import Registry
from eigenveil_server.process import as_datetime, unix_ms
from eigenveil_server.storage.database import open_store
from tests.server.rig import FEDERATION, HOUR, Rig, made, refusal, request_for, serving


async def test_only_the_key_of_a_request_is_used(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c")) as rig:
        key = new_key()
        answer = await rig.enrol(rig.token(Role.SITE, "anna"), request_for(key))
    leaf = x509.load_pem_x509_certificate(answer.certificate_pem)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    basic = leaf.extensions.get_extension_for_class(x509.BasicConstraints).value
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [name.value for name in names] == [f"eigenveil://{FEDERATION}/site/anna"]
    assert not basic.ca
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert leaf.public_key() == key.public_key()
    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).days == 7
    leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(rig.ca))
    (trusted,) = (list_from_json(one.list_json) for one in answer.authorities)
    assert (answer.federation, trusted.release_key) == (FEDERATION, release_public(rig.config.files))


async def test_wrong_tokens_make_their_own_address_wait_and_a_right_one_is_never_refused(rig: Rig) -> None:
    csr = request_for(new_key())
    for _ in range(3):
        assert (await refusal(rig.enrol("a guess", csr))).code is Code.IDENTITY
    (client,) = rig.daemon._enrol_gateway.quota._clients.values()
    assert client.allowance.seconds > 0, "the next one is not read at once"
    assert (await rig.enrol(rig.token(Role.SITE, "anna"), csr)).federation == FEDERATION


async def test_a_token_works_once_but_a_lost_reply_does_no_harm(rig: Rig) -> None:
    token, csr = rig.token(Role.SITE, "anna"), request_for(new_key())
    first = await rig.enrol(token, csr)
    assert (await rig.enrol(token, csr)).certificate_pem == first.certificate_pem
    refused = await refusal(rig.enrol(token, request_for(new_key())))
    assert refused.code is Code.IDENTITY
    assert "used already" in str(refused)


async def test_bad_and_expired_tokens_are_refused(rig: Rig) -> None:
    csr = request_for(new_key())
    unknown = await refusal(rig.enrol("x" * 43, csr))
    expired = await refusal(rig.enrol(rig.token(Role.SITE, "anna", valid_ms=0), csr))
    malformed = await refusal(rig.enrol(rig.token(Role.SITE, "anna"), b"not a request"))
    assert (unknown.code, expired.code) == (Code.IDENTITY, Code.IDENTITY)
    assert "unknown" in str(unknown)
    assert "expired" in str(expired)
    assert malformed.code is Code.BAD_ARGUMENT


async def test_the_database_holds_no_token(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c")) as rig:
        token = rig.token(Role.SITE, "anna")
    stored = b"".join(path.read_bytes() for path in (tmp_path / "c").glob("state.db*"))
    assert token.encode() not in stored


@pytest.mark.parametrize(
    "key", [ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)]
)
def test_only_p256_keys_are_certified(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    with pytest.raises(RequestError, match="P-256"):
        requested_key(request_for(key))


def test_a_request_must_be_signed_by_its_own_key() -> None:
    csr = bytearray(request_for(new_key()))
    csr[-1] ^= 1
    with pytest.raises(RequestError, match="not signed with its own key"):
        requested_key(bytes(csr))


def test_secrets_are_readable_by_the_owner_only(tmp_path: Path) -> None:
    made(tmp_path / "c")
    modes = {p.name: p.stat().st_mode & 0o777 for p in (tmp_path / "c").iterdir()}
    secret = ("ca.key", "server.key", "release.key", "audit.key", "state.db")
    assert {name: modes[name] for name in secret} == dict.fromkeys(secret, 0o600)
    assert json.dumps(sorted(modes)) == json.dumps(
        sorted([*secret, "authorities.json", "ca.pem", "server.pem", "coordinator.toml"])
    )


async def test_an_invented_token_waits_for_no_writer(rig: Rig) -> None:
    with rig.repository.store.writer.transaction():
        refused = await refusal(asyncio.wait_for(rig.enrol("x" * 43, request_for(new_key())), 60))
    assert "unknown" in str(refused)


def test_the_key_to_compare_is_that_of_the_certificate_in_force(tmp_path: Path) -> None:
    """Found here: with shorter lives, a re-enrolled site was shown with the key of its first certificate."""
    made(tmp_path / "c")
    now = [unix_ms()]
    store = open_store(tmp_path / "c" / "state.db")
    registry = Registry(store, FEDERATION, lambda: now[0])
    authority = Authority.create(FEDERATION, as_datetime(now[0]))
    for days in (7, 1):
        now[0] += 1000
        token = registry.new_token(Role.SITE, "anna", 1000)
        issued = registry.enrol(token, request_for(new_key()), authority, {Role.SITE: days}.__getitem__)
        (shown,) = registry.enrolled()
        assert (shown.key, round((shown.expires_at - now[0]) / (24 * HOUR))) == (issued.key, days)
    registry.deny(Role.SITE, "anna")
    (shown,) = registry.enrolled()
    assert (shown.denied, shown.key) == (True, issued.key)
    store.close()
