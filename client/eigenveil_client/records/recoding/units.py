"""One unit into another, as a factor and an offset that are exact until they are floats."""

from __future__ import annotations

import re
import tokenize
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from eigenveil.errors import Code, RequestError
from eigenveil_common.config import need

if TYPE_CHECKING:
    import pint


# The unified code for units of measure (UCUM), where pint has other names; what stands in braces is no unit.
UCUM = {"mm[Hg]": "mmHg", "[IU]": "IU", "[degF]": "degF", "Cel": "degC", "10*": "10**"}
REMARK = re.compile(r"\{[^}]*\}")
# Pint reads a unit as Python would read an expression, and asserts that none is left unfinished ("g/"); its
# own errors derive from the others.
PINT_RAISES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    TypeError,
    ValueError,
    SyntaxError,
    tokenize.TokenError,
)
EXPONENT = re.compile(r"(?<=[A-Za-z])(-?[0-9])")
# Powers are computed exactly: 10**9**9 has more digits than a machine has bytes. One of at most two digits is
# what units have, and no power of a power, be it by a parenthesis or by a second exponent.
MOST_CHARACTERS = 100
TOO_HIGH = re.compile(
    r"\)\s*\*\*|\*\*(?!\s*\(?[-+]?[0-9]{1,2}\)?(?![0-9.eE_]|\s*\*\*))|[0-9.]_*[eE][-+]?_*[0-9_]{3,}|[0-9]{31,}"
)


@cache
def conversion(given: str, wanted: str, molar_mass: float | None) -> tuple[float, float]:
    """Factor and offset that turn a number in `given` into one in `wanted`; `molar_mass` in g/mol leads from
    an amount of substance to its mass and back.

    Raises:
        RequestError: code `bad-config`: an unknown unit, no way between the two, or pint is not installed.
    """
    need(bool(given.strip() and wanted.strip()), "units: name both")
    zero, one = (_converted(_registry(), Fraction(n), given, wanted, molar_mass) for n in (0, 1))
    return float(one - zero), float(zero)


@cache
def _registry() -> pint.UnitRegistry[Any]:
    try:
        import pint  # an extra: only who has a rule with units needs it
    except ImportError:
        raise RequestError(
            Code.BAD_CONFIG, "units needs pint, which is not installed: pip install 'eigenveil[sources]'"
        ) from None
    registry: pint.UnitRegistry[Any] = pint.UnitRegistry(non_int_type=Fraction)
    registry.define("international_unit = [biological_activity] = IU")
    return registry


def _converted(
    registry: pint.UnitRegistry[Any], value: Fraction, given: str, wanted: str, molar_mass: float | None
) -> Fraction:
    try:
        here, there = _one(registry, given), _one(registry, wanted)
        amount = registry.Quantity(value * here.magnitude, here.units)
        if molar_mass is not None:
            mole = registry.Quantity(Fraction(str(molar_mass)), "g/mol")
            amount = amount * mole if (amount * mole).is_compatible_with(there.units) else amount / mole
        return Fraction(amount.to(there.units).magnitude / there.magnitude)
    except PINT_RAISES as problem:
        why = "" if molar_mass is not None else ", or molar_mass between an amount of substance and its mass"
        raise RequestError(
            Code.BAD_CONFIG, f"units: no way from {given!r} to {wanted!r}; state factor and offset{why}"
        ) from problem


def _as_python(text: str) -> str:
    """What pint makes of words and raised digits before it reads a unit."""
    from pint.util import string_preprocessor

    return str(string_preprocessor(text))


def _one(registry: pint.UnitRegistry[Any], unit: str) -> Any:
    """One of a unit, such as 10**3/uL: a number and what pint calls a unit."""
    text = REMARK.sub("1", f"1{unit}" if unit.startswith("/") else unit)
    for name, known in UCUM.items():
        text = text.replace(name, known)
    text = EXPONENT.sub(r"**\1", text)
    if len(text) > MOST_CHARACTERS or TOO_HIGH.search(_as_python(text)):
        raise ValueError("a power of more than two digits, or of a power")
    found: Any = registry.parse_expression(text)
    return found if isinstance(found, registry.Quantity) else registry.Quantity(Fraction(found), "")
