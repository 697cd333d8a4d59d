"""Formatting of epsilon, delta, mu and rho for people; no other module rounds them.

Amounts spent or guaranteed are rounded up in the last digit shown. Amounts left or allowed are rounded down.
Stated amounts are shown unchanged [P5]. The arithmetic is decimal, on the shortest decimal that reads back
as the same float. So 0.1 stays 0.1, and a text read back is never a float on the wrong side."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

PLAIN = 16  # digits before the point, beyond which a number is written with an exponent
SMALL = -5  # power of ten from which on downwards a number is written with an exponent
WIDE = Context(prec=PLAIN + 340, Emin=-999999, Emax=999999)  # room for every float

FRACTION_DIGITS = 40  # of a fraction, rounded to the same side as what is shown of it

Amount = float | int | Decimal | Fraction


def shown_up(value: Amount, digits: int = 4) -> str:
    """Return `value` rounded up to this number of significant digits, as text.

    All digits before the point are shown: 12345.6 is 12346 at any smaller number of digits.

    >>> shown_up(1.2344833), shown_up(0.1), shown_up(1e-6, 3), shown_up(0.9999999)
    ('1.235', '0.1', '1e-06', '1')"""
    return _text(_rounded(value, digits, ROUND_CEILING))


def shown_down(value: Amount, digits: int = 4) -> str:
    """Return `value` rounded down to this number of significant digits, as text.

    >>> shown_down(9.9999), shown_down(10.0), shown_down(0.1)
    ('9.999', '10', '0.1')"""
    return _text(_rounded(value, digits, ROUND_FLOOR))


def shown(value: float | int | Decimal) -> str:
    """Return a stated number with all its digits, as text.

    >>> shown(1.0), shown(0.1), shown(1e-6), shown(1.2344833)
    ('1', '0.1', '1e-06', '1.2344833')"""
    return _text(_decimal(value))


def rounded_up(value: float, digits: int) -> float:
    """Return the result of `shown_up` as a number."""
    return float(_rounded(value, digits, ROUND_CEILING))


def fixed_up(value: Amount, places: int) -> str:
    """Return `value` rounded up, with exactly this number of decimals; used in signed documents.

    >>> fixed_up(0.2367, 6), fixed_up(1.0000001, 6)
    ('0.236700', '1.000001')"""
    return _places(math.ceil(_exact(value) * 10**places), places)


def percent_up(part: Amount, whole: Amount, places: int = 0) -> str:
    """Return a share that is spent or reserved, in percent with this number of decimals, rounded up.

    >>> percent_up(1, 3), percent_up(1, 3, 1), percent_up(0, 3)
    ('34', '33.4', '0')
    >>> percent_up(0.07, 1)
    '7'"""
    return _places(math.ceil(_parts(part, whole, places)), places)


def percent_down(part: Amount, whole: Amount, places: int = 0) -> str:
    """Return a share that is left, in percent with this number of decimals, rounded down."""
    return _places(math.floor(_parts(part, whole, places)), places)


def _parts(part: Amount, whole: Amount, places: int) -> Fraction:
    return _exact(part) / _exact(whole) * Fraction(100 * 10**places)


def _places(count: int, places: int) -> str:
    return format(Decimal(count).scaleb(-places, WIDE), "f")


def _exact(value: Amount) -> Fraction:
    return value if isinstance(value, Fraction) else Fraction(_decimal(value))


def _decimal(value: float | int | Decimal) -> Decimal:
    """Return the shortest decimal that reads back as this float."""
    return Decimal(value) if isinstance(value, int | Decimal) else Decimal(repr(float(value)))


def _rounded(value: Amount, digits: int, rounding: str) -> Decimal:
    if isinstance(value, Fraction):
        quotient = Context(prec=FRACTION_DIGITS, rounding=rounding)
        exact = quotient.divide(Decimal(value.numerator), Decimal(value.denominator))
    else:
        exact = _decimal(value)
    if not exact.is_finite() or not exact:
        return exact
    lowest = exact.adjusted() - digits + 1  # the power of ten of the last digit shown
    if exact.adjusted() < PLAIN:
        lowest = min(lowest, 0)
    return exact.quantize(Decimal(1).scaleb(lowest, WIDE), rounding=rounding, context=WIDE)


def _text(value: Decimal) -> str:
    if not value.is_finite():
        return str(value).lower().replace("infinity", "inf")
    if not value:
        return "0"
    plain, power = value.normalize(WIDE), value.adjusted()
    if SMALL < power < PLAIN:
        return format(plain, "f")
    return f"{format(plain.scaleb(-power, WIDE), 'f')}e{power:+03d}"
