"""[R20] Ledger checkpoints: their signed form, and the comparison of two of them."""

from __future__ import annotations

import json
from random import Random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.accounting.checkpoint import (
    CHECKPOINT_SIGNED,
    MOST_BYTES,
    Checkpoint,
    checkpoint_of,
    verify_checkpoint,
)
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code
from tests.support import refused

KEY = Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw()


def digests(count: int, seed: int = 0) -> list[str]:
    random = Random(seed)
    return [random.randbytes(32).hex() for _ in range(count)]


def checkpoint(rows: list[str], spent: int = 7, gaussian: bool = False) -> Checkpoint:
    return checkpoint_of("fed", rows, [Cost(micro_rho=spent, atto_delta=10**20)], gaussian=gaussian)


def signed(message: bytes) -> tuple[bytes, bytes, bytes]:
    return message, KEY.sign(CHECKPOINT_SIGNED + message), PUBLIC


@pytest.mark.parametrize("size", [1, 2, 17, 18, 500])
def test_a_head_is_read_back_as_it_was_signed(size: int) -> None:
    for gaussian in (True, False):
        one = checkpoint(digests(size), gaussian=gaussian)
        assert verify_checkpoint(*signed(one.signed_json)) == one


def test_a_changed_or_strange_head_is_refused() -> None:
    message = checkpoint(digests(3)).signed_json
    with refused(Code.IDENTITY, "not signed"):
        verify_checkpoint(message.replace(b"7", b"6"), KEY.sign(CHECKPOINT_SIGNED + message), PUBLIC)
    with refused(Code.IDENTITY, "not signed"):
        verify_checkpoint(message, KEY.sign(message), PUBLIC)
    for wrong in (b"", b"[]", b"{}", message[:-2], message.replace(b'"size":"3"', b'"size":"4"')):
        with refused(Code.PROTOCOL, "rejected"):
            verify_checkpoint(*signed(wrong))
    for key, value in {"gaussian": 1, "trail": 1, "micro_rho": "-1", "size": "0", "digest": ""}.items():
        with refused(Code.PROTOCOL, "rejected"):
            verify_checkpoint(*signed(json.dumps(json.loads(message) | {key: value}).encode()))
    with refused(Code.PROTOCOL, "too long"):
        verify_checkpoint(*signed(b" " * (MOST_BYTES + 1)))


def test_a_head_is_in_its_own_ledger_and_in_longer_ones_only() -> None:
    rows = digests(40)
    assert checkpoint(rows[:30]).is_in(rows[:30])
    assert checkpoint(rows[:30]).is_in(rows)
    assert not checkpoint(rows[:30]).is_in(rows[:29])
    assert not checkpoint(rows[:30]).is_in([*rows[:29], *digests(1, 1)])


def test_later_heads_follow_and_those_of_another_ledger_contradict() -> None:
    rows, other = digests(60), digests(60, 1)
    later, earlier = checkpoint(rows[:50]), checkpoint(rows[:45])
    assert later.follows(earlier)
    assert later.follows(later)
    assert not earlier.follows(later)
    assert not later.contradicts(earlier)
    fork = checkpoint([*rows[:40], *other[40:50]])
    assert fork.contradicts(earlier)
    assert not fork.follows(earlier)


@pytest.mark.parametrize("size", [1, 20, 21, 100, 400])
@pytest.mark.parametrize("shared", [0, 1, 15, 16, 99, 300])
def test_the_last_shared_row_is_never_overestimated(size: int, shared: int) -> None:
    lost = digests(size)
    here = [*lost[:shared], *digests(50, 1)]
    found = checkpoint(lost).last_shared_row(here)
    assert found <= min(shared, size)
    assert size - found <= 2 + 9 / 8 * max(16, size - min(shared, size - 1))  # and hardly for less
