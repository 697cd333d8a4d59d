"""[P26] Each integer is the one that its bits stand for, whatever floats make of it.

Nothing here is random but what hypothesis picks, so there are no false alarms."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from unittest import mock

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil.noise import quantiles as tables
from eigenveil.noise import sampler
from eigenveil.noise.quantiles import GAUSSIAN, LAPLACE, PIECES, Quantile, QuantileTable, table
from eigenveil.noise.sampler import (
    AT_ONCE,
    draw_exactly,
    evaluate_quantiles,
    float_shift,
    integers,
    magnitude,
    margins,
    propose_integers,
)
from eigenveil.numerics.encoding import IntArray, WordArray
from eigenveil.protocol.query_limits import MAX_NOISE_SCALE
from tests.core.noise import inversion
from tests.core.noise.inversion import Given, Tail, boundary, draws, fixed

DISTRIBUTIONS: dict[str, tuple[Quantile, Tail]] = {
    "gaussian": (GAUSSIAN, inversion.gaussian),
    "laplace": (LAPLACE, inversion.laplace),
}
SCALES = [0.3, 1.0, 3.0, 1e3, 2.0**20, 2.0**32, 2.0**40]
ONES = 2**63 - 1
MORE = 4  # words that one value may append in a test

both = pytest.mark.parametrize("distribution", DISTRIBUTIONS)


def hard_tails(tail: Tail, scale: float) -> list[int]:
    """Leading bits near the boundaries between integers, and at both ends."""
    ks = {1, 2, 3, *(max(1, round(scale * z)) for z in (0.01, 0.3, 0.67, 1, 2, 3.3, 4.7, 5.1, 6, 8))}
    near = [boundary(tail, scale, k) + step for k in sorted(ks) for step in range(-3, 4)]
    ends = [*range(4), *(2**e + step for e in (42, 43, 62) for step in (-1, 0, 1)), ONES - 1, ONES]
    return [min(max(m, 0), ONES) for m in near + ends]


def same(distribution: str, scale: float, first: list[int], after: list[int]) -> bool:
    """True if product and reference turn the same words into the same bytes, and read as many of them."""
    quantile, tail = DISTRIBUTIONS[distribution]
    ours, theirs = Given([*first, *after]), Given([*first, *after])
    drawn = integers(quantile, scale, len(first), ours)
    wanted = draws(tail, scale, len(first), theirs)
    return drawn.tobytes() == wanted.tobytes() and ours.read == theirs.read


@both
@pytest.mark.parametrize("scale", [*SCALES, MAX_NOISE_SCALE])
def test_fixed_bytes_give_the_bytes_of_the_reference(distribution: str, scale: float) -> None:
    hard = [2 * m + sign for m in hard_tails(DISTRIBUTIONS[distribution][1], scale) for sign in (0, 1)]
    words = hard + fixed(f"{distribution} {scale}", 80)
    assert same(distribution, scale, words, fixed("appended", MORE * len(words)))


@both
@settings(max_examples=40)
@given(
    scale=st.floats(-3, 56).map(lambda e: 2.0**e),
    words=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=2),
    depth=st.integers(0, 40),
)
def test_fast_and_slow_agree_at_any_scale(
    distribution: str, scale: float, words: list[int], depth: int
) -> None:
    deep = [word >> depth for word in words]
    assert same(distribution, scale, [*words, *deep], fixed(f"{scale}", MORE * 4))


@both
@pytest.mark.parametrize("scale", [1.0, 1e3, 2.0**32, 2.0**48])
def test_a_boundary_within_the_first_word_is_settled_by_as_many_more_as_it_takes(
    distribution: str, scale: float
) -> None:
    """Words that are the boundary's own bits, but for the last: one less is k, one more is k - 1."""
    quantile, tail = DISTRIBUTIONS[distribution]
    k = max(1, round(scale))
    for words in (2, 3):
        exact = boundary(tail, scale, k, 64 * words)
        for step, wanted in ((-1, k), (1, k - 1)):
            bits = exact + step
            first, *rest = [(bits >> (64 * i)) % 2**64 for i in reversed(range(words))]
            stream = Given(rest)
            assert draw_exactly(quantile, scale, 2 * first, stream) == wanted
            assert stream.read == words - 1


@both
def test_pieces_are_drawn_one_after_the_other_from_one_stream(distribution: str) -> None:
    """And words are appended behind the first words of their own piece."""
    quantile, tail = DISTRIBUTIONS[distribution]
    straddling = 2 * boundary(tail, 5.0, 4)
    first = fixed("piece", AT_ONCE + 1)
    first[7] = straddling
    first.insert(AT_ONCE, 12345)  # appended to the straddling one, between the two pieces
    ours = Given(first)
    drawn = integers(quantile, 5.0, AT_ONCE + 1, ours)
    assert ours.read == AT_ONCE + 2
    wanted = [draw_exactly(quantile, 5.0, w, Given([12345])) for w in (straddling, first[-1])]
    assert [drawn[7], drawn[-1]] == wanted
    assert AT_ONCE == inversion.PIECE


def doubted(quantile: Quantile, scale: float, words: WordArray) -> tuple[IntArray, IntArray]:
    """Proposals of floats, and places of the uncertain ones."""
    out = np.empty(words.size, dtype=np.int64)
    fast, (moved, off) = table(quantile), float_shift(quantile, scale)
    at = propose_integers(words, fast.coefficients, scale, moved, margins(fast, scale, off), out)
    return out, at


def wrong(quantile: Quantile, scale: float, words: WordArray) -> int:
    """Count of wrong integers that floats are sure of."""
    out, at = doubted(quantile, scale, words)
    sure = np.setdiff1d(np.arange(words.size), at)
    assert sure.size > words.size / 10
    return sum(int(out[i]) != draw_exactly(quantile, scale, int(words[i]), Given([0] * MORE)) for i in sure)


@both
def test_floats_settle_no_integer_against_interval_arithmetic(distribution: str) -> None:
    """So loud that most values are near a boundary by the bound."""
    assert wrong(DISTRIBUTIONS[distribution][0], 2.0**46, words_for_floats(100)) == 0


@both
def test_what_the_shift_is_off_by_leaves_as_much_in_doubt(distribution: str) -> None:
    """A shift that is known to 20 bits alone, next to boundaries and elsewhere: the same integers."""
    words = [2 * m for m in hard_tails(DISTRIBUTIONS[distribution][1], 1e3)] + fixed("coarse", 80)
    moved, off = float_shift(DISTRIBUTIONS[distribution][0], 1e3)
    for by in (2.0**-20, -(2.0**-20)):
        with mock.patch.object(sampler, "float_shift", return_value=(moved + by, off + 2.0**-20)):
            assert same(distribution, 1e3, words, fixed("appended", MORE * len(words)))


def words_for_floats(count: int) -> WordArray:
    """From the middle of the law to the end of the table; and halfway between two floats."""
    fair = fixed("floats", count)
    deep = [word >> depth for depth in range(18) for word in fair]
    halfway = [((word >> 12 | 1 << 52) << k | 1 << k >> 1) << 1 for k in range(1, 11) for word in fair]
    return np.array(deep + halfway, dtype=np.uint64)


def furthest(quantile: Quantile, fast: QuantileTable, scale: float) -> float:
    """The largest error of what is rounded to an integer, as a part of its bound, at both ends of every
    word."""
    words, (moved, off) = words_for_floats(60), float_shift(quantile, scale)
    values, pieces = evaluate_quantiles(words, fast.coefficients)
    margin = margins(fast, scale, off)[np.clip(pieces, 0, PIECES + 1)]
    found = []
    with ctx.workprec(160):
        inside = np.isfinite(margin)
        for word, value, m in zip(words[inside], scale * values[inside] + moved, margin[inside], strict=True):
            for tail in (int(word) // 2, int(word) // 2 + 1):
                exact = arb(scale) * quantile.at(arb((tail, -64))) + quantile.shift(scale) - arb(0.5)
                found.append(float(abs(exact - arb(float(value)))) / (0.5 - m))
    assert len(found) > words.size
    return max(found)


@both
@pytest.mark.parametrize("degree", [3, tables.DEGREE])
def test_no_float_is_further_off_than_its_bound_and_some_nearly_as_far(
    distribution: str, degree: int
) -> None:
    """Of polynomials of a lower degree, too: there the remainder is all that counts."""
    quantile = DISTRIBUTIONS[distribution][0]
    with mock.patch.object(tables, "DEGREE", degree):
        assert 0.8 < furthest(quantile, tables._build(quantile), 1000.0) <= 1


@both
def test_every_value_is_in_doubt_where_integers_are_finer_than_floats(distribution: str) -> None:
    words = np.array(fixed("loudest", 2000), dtype=np.uint64)
    assert doubted(DISTRIBUTIONS[distribution][0], MAX_NOISE_SCALE, words)[1].size == words.size


@both
def test_what_lies_beyond_64_bits_becomes_the_largest(distribution: str) -> None:
    """A tail below 2^-12000: only with bits that never come."""
    with ctx.workprec(128):
        assert magnitude(DISTRIBUTIONS[distribution][0], MAX_NOISE_SCALE, 1, 12_000) == 2**63 - 1
        quieter = magnitude(DISTRIBUTIONS[distribution][0], MAX_NOISE_SCALE / 2**8, 1, 12_000)
    assert quieter is not None
    assert quieter < 2**63 - 1


def test_it_is_written_with_its_sign() -> None:
    for sign, end in ((0, 2**63 - 1), (1, -(2**63) + 1)):
        assert integers(LAPLACE, MAX_NOISE_SCALE, 1, Given([sign, 0, 0, 0, 1])).tolist() == [end]


@both
@pytest.mark.parametrize("scale", [1e-300, 1e-3])
def test_next_to_no_noise_is_none(distribution: str, scale: float) -> None:
    assert not integers(DISTRIBUTIONS[distribution][0], scale, 300, Given(fixed("quiet", 300))).any()


class Lowered:
    """Precision changed by other threads: the first time that it is set, it is `bits`."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.calls = 0

    def workprec(self, bits: int) -> AbstractContextManager[object]:
        self.calls += 1
        return ctx.workprec(self.bits if self.calls == 1 else bits)


@both
def test_a_precision_lowered_meanwhile_reads_words_but_decides_nothing(distribution: str) -> None:
    for word in fixed("lowered", 40):
        stream, wanted = (
            Given(fixed("more", 9)),
            draw_exactly(DISTRIBUTIONS[distribution][0], 2.0**32, word, Given([])),
        )
        with mock.patch.object(sampler, "ctx", Lowered(20)):
            assert draw_exactly(DISTRIBUTIONS[distribution][0], 2.0**32, word, stream) == wanted
        assert stream.read == 1
        with mock.patch.object(sampler, "ctx", Lowered(20)):
            assert integers(DISTRIBUTIONS[distribution][0], 2.0**32, 1, Given([word])).tolist() == [wanted]


@both
def test_a_table_of_a_lowered_precision_is_built_again(distribution: str) -> None:
    quantile, lowered = DISTRIBUTIONS[distribution][0], Lowered(30)
    with mock.patch.object(tables, "ctx", lowered):
        built = table.__wrapped__(quantile)
    assert lowered.calls == 2
    assert np.array_equal(built.errors, table(quantile).errors)


@both
def test_threads_that_draw_at_once_draw_what_each_draws_alone(distribution: str) -> None:
    """The precision is theirs in common, and switching as often as this lets each set it for the others."""

    def drawn(name: str) -> list[int]:
        return integers(DISTRIBUTIONS[distribution][0], 2.0**46, 300, Given(fixed(name, 900))).tolist()

    names, before = ["a", "b", "c", "d"], sys.getswitchinterval()
    wanted = [drawn(name) for name in names]
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(drawn, names)) == wanted
    finally:
        sys.setswitchinterval(before)
