"""Privacy amounts as text are rounded to one side, and stated amounts are shown as stated [P5]."""

from __future__ import annotations

import math
import random
import struct
from decimal import Decimal
from fractions import Fraction

import pytest

from eigenveil.accounting.formatting import (
    fixed_up,
    percent_down,
    percent_up,
    rounded_up,
    shown,
    shown_down,
    shown_up,
)

FLOATS = [
    value
    for seed in range(2000)
    if math.isfinite(value := struct.unpack("d", random.Random(seed).randbytes(8))[0]) and abs(value) < 1e300
]


@pytest.mark.parametrize(
    ("value", "up", "down", "stated"),
    [
        (1.2344833, "1.235", "1.234", "1.2344833"),
        (-0.0, "0", "0", "0"),
        (math.inf, "inf", "inf", "inf"),
        (math.nan, "nan", "nan", "nan"),
        (1.00001e-6, "1.001e-06", "1e-06", "1.00001e-06"),
        (9.9999, "10", "9.999", "9.9999"),
        (9.99999e-5, "0.0001", "9.999e-05", "9.99999e-05"),
        (1.23456e17, "1.235e+17", "1.234e+17", "1.23456e+17"),
        (5e-324, "5e-324", "5e-324", "5e-324"),
        (Decimal("0.30000001"), "0.3001", "0.3", "0.30000001"),
    ],
)
def test_a_number_is_rounded_to_one_side_or_shown_as_stated(
    value: float, up: str, down: str, stated: str
) -> None:
    assert (shown_up(value), shown_down(value), shown(value)) == (up, down, stated)


@pytest.mark.parametrize("digits", [1, 2, 4, 6])
def test_a_text_reads_back_as_a_number_on_its_side_and_moves_no_further(digits: int) -> None:
    for value in FLOATS:
        up, down = shown_up(value, digits), shown_down(value, digits)
        assert float(down) <= value <= float(up) == rounded_up(value, digits)
        assert (shown_up(float(up), digits), shown_down(float(down), digits)) == (up, down)
        assert float(shown(value)) == value
        unit = Fraction(10) ** (Decimal(repr(value)).adjusted() - digits + 1)
        assert Fraction(up) - Fraction(down) <= unit


def test_shares_are_rounded_up_when_spent_and_down_when_left() -> None:
    assert (percent_up(1, 3), percent_down(1, 3), percent_up(1, 3, 1)) == ("34", "33", "33.4")
    assert (percent_up(0.07, 1), percent_up(0, 5), percent_down(5, 5, 1)) == ("7", "0", "100.0")
    assert (fixed_up(0.2367, 6), fixed_up(Decimal("0.12345600001"), 6)) == ("0.236700", "0.123457")


@pytest.mark.parametrize("digits", [3, 4])
def test_a_fraction_is_rounded_to_the_requested_side(digits: int) -> None:
    """A float of it is the nearest, which may lie on the other side."""
    for share in (Fraction(1, 3), Fraction(2, 3), Fraction(10**20 + 1, 10**21), Fraction(5, 10**6 + 7)):
        up, down = Fraction(shown_up(share, digits)), Fraction(shown_down(share, digits))
        assert down < share < up
        assert up - down <= share / 10 ** (digits - 1)
    assert (shown_up(Fraction(1, 10)), shown_down(Fraction(1, 10))) == ("0.1", "0.1")
    assert percent_up(Fraction(1, 3), 1, 1) == "33.4"
