"""[P31] [P33] The masks that sites really add cancel in the sum over all honest members of one attempt, and
in nothing else: what test_equivocation shows of masks as they are specified is found again in their words.
Colluders' masks are taken off first, as a coordinator would that knows them. 40 words stand for all: two of
these systems with different solutions agree in as many fair words with a chance below 2^-30."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from hashlib import sha256

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from eigenveil.numerics.encoding import IntArray
from eigenveil.secure_aggregation.masking import AT_ONCE, Attempt, add_mask, mask_key, masked
from tests.core.secure_aggregation.test_equivocation import NAMES, repeated, ways
from tests.core.secure_aggregation.unmasking import Answer, Shown, cancelling, laid_open

WORDS = 40


def secret(one: str, other: str) -> bytes:
    return sha256("".join(sorted((one, other))).encode()).digest()


def attempt(to: Shown) -> Attempt:
    members = {name: sha256(name.encode()).hexdigest() for name in to.members}
    return Attempt(plan="ab" * 32, round=to.round, query="cd" * 32, number=to.number, members=members)


def sent(site: str, to: Attempt) -> IntArray:
    """Masked answer of zeros, without noise. Shape: (WORDS,)."""
    secrets = {other: secret(site, other) for other in to.members if other != site}
    return masked(np.zeros(WORDS, np.int64), np.zeros(WORDS, np.int64), site, secrets, to)


@cache
def hidden(answer: Answer, honest: str) -> list[int]:
    to = attempt(answer.to)
    words = sent(answer.site, to).view(np.uint64).copy()
    for other in set(to.members) - set(honest):
        key = mask_key(secret(answer.site, other), to, answer.site, other)
        add_mask(words, key, negative=other < answer.site)
    return [int(word) for word in words]


def problems(answers: Sequence[Answer], honest: str) -> list[str]:
    """Forbidden information in these answers, with one site that may collude."""
    words = {answer: hidden(answer, honest) for answer in answers}
    found = cancelling(zip(*words.values(), strict=True), len(answers))
    known = frozenset(honest)
    result = [laid_open(one, answers, known, lambda size: Fraction(1, size - 1)) for one in found]
    for to in {answer.to for answer in answers}:
        inside = [Answer(site, to) for site in to.members & known]
        if all(one in words for one in inside):
            left = [sum(column) % 2**64 for column in zip(*(words[one] for one in inside), strict=True)]
            result.append("masks do not cancel" if any(left) else "")
    return [text for text in result if text]


@pytest.mark.parametrize(("n", "bad"), [(3, 0), (3, 1), (4, 1)])
def test_masks_cancel_only_in_sums_over_all_honest_members(n: int, bad: int) -> None:
    sites, honest = NAMES[:n], NAMES[: n - bad]
    for answers in ways(honest, sites, 1):
        assert problems(answers, honest) == []


@pytest.mark.parametrize("again", [(2, 0), (1, 1)], ids=["another attempt", "another round"])
def test_attempts_and_rounds_have_masks_of_their_own(again: tuple[int, int]) -> None:
    for answers in repeated("ab", "abc", (1, 0), again):
        assert problems(answers, "ab") == []


def test_a_copied_key_does_not_take_a_mask_away() -> None:
    """A colluder's card may bear another site's key: the same secret twice, once added, once taken away."""
    to = attempt(Shown(frozenset("abz")))
    shared = secret("a", "b")
    zero = np.zeros(WORDS, np.int64)
    assert np.all(masked(zero, zero.copy(), "b", {"a": shared, "z": shared}, to) != 0)


def test_the_mask_of_a_long_answer_is_one_key_stream() -> None:
    """A mask that began anew would hide the difference of two words behind nothing."""
    key, words = bytes(range(32)), np.zeros(2 * AT_ONCE + 5, np.uint64)
    add_mask(words, key, negative=False)
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(words.nbytes))
    assert np.array_equal(words, np.frombuffer(stream, dtype="<u8"))
    add_mask(words, key, negative=True)
    assert not words.any()


def test_masked_answers_add_up_to_answers_and_shares() -> None:
    rng = np.random.default_rng(1)
    values, shares = (rng.integers(-(2**62), 2**62, (3, WORDS)) for _ in range(2))
    to = attempt(Shown(frozenset("abc")))
    total = np.zeros(WORDS, np.uint64)
    for site, x, e in zip("abc", values, shares, strict=True):
        secrets = {other: secret(site, other) for other in to.members if other != site}
        total += masked(x, e.copy(), site, secrets, to).view(np.uint64)
    expected = values.view(np.uint64).sum(axis=0) + shares.view(np.uint64).sum(axis=0)
    assert np.array_equal(total, expected)
