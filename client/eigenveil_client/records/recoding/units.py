"""One unit into another, as a factor and an offset that are exact until they are floats."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from eigenveil.errors import Code, RequestError
from eigenveil_common.config import need

if TYPE_CHECKING:
    import pint


@cache
def conversion(given: str, wanted: str, molar_mass: float | None) -> tuple[float, float]:
    """Factor and offset that turn a number in `given` into one in `wanted`; `molar_mass` in g/mol leads from
    an amount of substance to its mass and back.

    Raises:
        RequestError: code `bad-config`: an unknown unit, no way between the two, or pint is not installed.
    """
    need(bool(given.strip() and wanted.strip()), "units: name both")
    registry = _registry()
    zero, one = (_converted(registry, Fraction(n), given, wanted, molar_mass) for n in (0, 1))
    return float(one - zero), float(zero)


@cache
def _registry() -> pint.UnitRegistry[Any]:
    try:
        import pint  # an extra: only who has a rule with units needs it
    except ImportError:
        raise RequestError(
            Code.BAD_CONFIG, "units needs pint, which is not installed: pip install 'eigenveil[sources]'"
        ) from None
    return pint.UnitRegistry(non_int_type=Fraction)


def _converted(
    registry: pint.UnitRegistry[Any], value: Fraction, given: str, wanted: str, molar_mass: float | None
) -> Fraction:
    try:
        amount, goal = registry.Quantity(value, given), registry.Unit(wanted)
        if molar_mass is not None:
            mole = registry.Quantity(Fraction(str(molar_mass)), "g/mol")
            amount = amount * mole if (amount * mole).is_compatible_with(goal) else amount / mole
        return Fraction(amount.to(goal).magnitude)
    except (ArithmeticError, AttributeError, TypeError, ValueError) as problem:  # whatever pint raises is one
        why = "" if molar_mass is not None else ", or molar_mass between an amount of substance and its mass"
        raise RequestError(
            Code.BAD_CONFIG, f"units: no way from {given!r} to {wanted!r}; state factor and offset{why}"
        ) from problem
