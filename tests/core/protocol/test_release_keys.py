"""A release key has a successor that it names itself, and that is announced before it signs. [R34]"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.errors import Code
from eigenveil.protocol.authorities import (
    AuthorityList,
    KeyUse,
    ReleaseKey,
    list_from_json,
    succession_bytes,
    update_authorities,
)
from tests.client.site.support import Authority, signed
from tests.support import refused

NOW = datetime.now(UTC)
CA = Authority()
FIRST = CA.trusting()
KEYS = [Ed25519PrivateKey.from_private_bytes(bytes(31) + bytes([number])) for number in range(1, 5)]


def public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def announcing(one: AuthorityList, key: Ed25519PrivateKey, by: Ed25519PrivateKey) -> AuthorityList:
    succession = by.sign(succession_bytes(one.federation, public(key)))
    return replace(one, version=one.version + 1, release_keys=one.with_next_key(public(key), succession))


def switched(one: AuthorityList) -> AuthorityList:
    return replace(one, version=one.version + 1, release_keys=one.with_next_signing())


SECOND = announcing(FIRST, KEYS[0], CA.release_key)
THIRD = switched(SECOND)


def test_a_key_is_announced_then_signs_and_the_old_one_verifies_for_ever() -> None:
    old, new = CA.release_public, public(KEYS[0])
    assert update_authorities(FIRST, [signed(SECOND, CA), signed(THIRD, CA)], NOW) == THIRD
    assert (SECOND.release_key, SECOND.accepted_keys, SECOND.known_keys) == (old, (old, new), (old, new))
    assert (THIRD.release_key, THIRD.accepted_keys, THIRD.known_keys) == (new, (new,), (old, new))
    assert list_from_json(THIRD.to_json()) == THIRD
    fourth = announcing(THIRD, KEYS[1], KEYS[0])
    fifth = switched(fourth)
    assert update_authorities(THIRD, [signed(fourth, CA), signed(fifth, CA)], NOW).known_keys == (
        old, new, public(KEYS[1]),
    )  # fmt: skip


def test_an_announced_key_may_be_replaced_before_it_signs() -> None:
    other = announcing(SECOND, KEYS[1], CA.release_key)
    assert update_authorities(SECOND, [signed(other, CA)], NOW).accepted_keys[1] == public(KEYS[1])


@pytest.mark.parametrize(
    "following",
    [
        CA.trusting(version=2, release_key=public(KEYS[0])),
        replace(THIRD, version=2),
    ],
    ids=["a key that nobody named", "a key that was not announced"],
)
def test_a_list_with_another_release_key_is_refused_whoever_signs_it(following: AuthorityList) -> None:
    """The authorities alone cannot replace the release key, nor can they skip its announcement."""
    with refused(Code.IDENTITY, "another release key than was announced"):
        update_authorities(FIRST, [signed(following, CA)], NOW)


def test_no_key_that_has_signed_leaves_the_list() -> None:
    without = CA.trusting(version=4, release_key=public(KEYS[0]))
    with refused(Code.IDENTITY, "another release key"):
        update_authorities(THIRD, [signed(without, CA)], NOW)


SIGNS = ReleaseKey(key=CA.release_public, use=KeyUse.SIGNS)
NEXT = SECOND.release_keys[1]


@pytest.mark.parametrize(
    "keys",
    [
        (),
        (SIGNS, SIGNS),
        (replace(SIGNS, use=KeyUse.NEXT),),
        (replace(SIGNS, use=KeyUse.EARLIER),),
        (SIGNS, replace(NEXT, use=KeyUse.SIGNS)),
        (SIGNS, replace(NEXT, use=KeyUse.EARLIER)),
        (SIGNS, replace(NEXT, succession=b"")),
        (SIGNS, replace(NEXT, succession=KEYS[0].sign(succession_bytes(FIRST.federation, NEXT.key)))),
        (SIGNS, replace(NEXT, succession=CA.release_key.sign(succession_bytes("elsewhere", NEXT.key)))),
        (replace(SIGNS, succession=bytes(64)),),
        (replace(SIGNS, key=bytes(31)),),
    ],
)
def test_keys_out_of_order_or_without_a_valid_succession_are_refused(keys: tuple[ReleaseKey, ...]) -> None:
    with refused(Code.PROTOCOL):
        replace(FIRST, release_keys=keys)


@pytest.mark.parametrize(
    "addresses", [("host",), ("host:0",), ("host:99999x",), ("a b:1",), ("h:1",) * 5, ("\x1b:1",), (":1",)]
)
def test_an_address_that_is_none_is_refused(addresses: tuple[str, ...]) -> None:
    with refused(Code.PROTOCOL, "HOST:PORT"):
        replace(FIRST, addresses=addresses)


@pytest.mark.parametrize("address", ["host.example:7443", "10.0.0.1:1", "[::1]:7443"])
def test_addresses_are_part_of_the_list(address: str) -> None:
    one: Any = replace(FIRST, addresses=(address, "other:1"))
    assert list_from_json(one.to_json()).addresses == (address, "other:1")
