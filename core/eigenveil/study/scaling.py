"""Scaling of a study's columns: its default, and warnings where components follow the widths of the bounds.

By bounds, a column's variance is that of its values relative to half the distance between its bounds. So of
columns in different units those with the narrowest bounds for their values make up the components. The
components of the correlations do not depend on units or bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from eigenveil.study.algorithm import Algorithm
from eigenveil.study.radius import PublicNorm, Radius

PLAUSIBLE_SPREADS = 4.0  # standard deviations in a plausible range, which has nearly all values
DOMINATING = 2.0  # times the mean variance of all columns, from which on a column dominates
MOST_NAMED = 3
ONE = ("", "1")  # units of a column without a unit


FINE_STEPS = 30  # grid steps a standard deviation, from which on rounding of records is harmless
RIGHT_SPREADS = 10  # standard deviations between right bounds of a column


class Scaling(Enum):
    """Scaling of columns. `bounds`: every column to [-1, 1]. `none`: one common factor, so directions have
    the columns' units. `standard`: every column divided by its standard deviation, which a share of the
    budget estimates."""

    BOUNDS = "bounds"
    NONE = "none"
    STANDARD = "standard"


class ScalingText(NamedTuple):
    """Texts about a scaling. `column`: the unit in which a column counts. `note`: the unit of a result's
    variances, in a sentence; `axis`: the same for an axis, empty if it is the columns' own."""

    column: str
    note: str
    axis: str = ""


SCALING_TEXTS = {
    Scaling.BOUNDS: ScalingText(
        column="a column counts in half the distance between its bounds",
        note="Every column was scaled to [−1, 1] by its public bounds; variances are on that scale.",
        axis="columns scaled to [−1, 1]",
    ),
    Scaling.STANDARD: ScalingText(
        column="a column counts in its standard deviation, which is estimated first",
        note="Every column was divided by its noised standard deviation; variances are on that scale, on "
        "which a column has a variance of about 1.",
        axis="columns divided by their standard deviation",
    ),
    Scaling.NONE: ScalingText(
        column="all columns count in one unit",
        note="Variances are in the squared unit of the columns.",
    ),
}


class BoundedColumn(Protocol):
    """Column of a study, with a unit and public bounds."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def half_range(self) -> float: ...


class PlausibleSpread(NamedTuple):
    """Public estimate of the standard deviation of a column, in `unit`."""

    unit: str
    spread: float


Spreads = Mapping[str, PlausibleSpread]  # by the names of columns
NO_SPREADS: Spreads = {}


def default_scaling(
    columns: Iterable[BoundedColumn], *, algorithm: Algorithm, centring: bool, radius: Radius
) -> Scaling:
    """Return the scaling of a study that states none: `standard` if the units of its columns differ and its
    other settings allow it, else `bounds`. Source: `python -m benchmarks.scaling_default`."""
    possible = centring and not isinstance(radius, PublicNorm) and not algorithm.properties.exact_rows
    return Scaling.STANDARD if possible and len(_units(columns)) > 1 else Scaling.BOUNDS


def width_warnings(
    columns: Sequence[BoundedColumn], spreads: Spreads, scaling: Scaling | None, grid_steps: int
) -> tuple[str, ...]:
    """Return the warnings about the widths of bounds, by `spreads` where they are known."""
    dominated = bounds_warnings(columns, spreads) if scaling is Scaling.BOUNDS else ()
    return (*dominated, *coarse_warnings(columns, spreads, scaling, grid_steps))


def bounds_warnings(columns: Sequence[BoundedColumn], spreads: Spreads = NO_SPREADS) -> tuple[str, ...]:
    """Return a warning if the components of columns that are scaled by bounds follow the widths of these.

    That is so if the units of the columns differ, or if by `spreads` some columns vary much more within their
    bounds than others. It names the columns that will dominate, if they are known."""
    known = {one.name: spreads[one.name] for one in columns if one.name in spreads}
    variances = {
        one.name: (known[one.name].spread / one.half_range) ** 2
        for one in columns
        if one.name in known and _unit(known[one.name].unit) == _unit(one.unit)
    }
    heavy, units = dominating(variances), _units(columns)
    if len(units) < 2 and not (heavy and differ(columns)):
        return ()
    why = f", and the columns have different units ({named(units)})" if len(units) > 1 else ""
    first = f"{named(heavy)} will dominate them" if heavy else "columns with narrow bounds dominate them"
    warning = f'with scaling = "bounds" the components follow the widths of the bounds{why}: {first}'
    return (f'{warning}. For the components of the correlations state scaling = "standard"',)


def coarse_warnings(
    columns: Sequence[BoundedColumn], spreads: Spreads, scaling: Scaling | None, grid_steps: int
) -> tuple[str, ...]:
    """Return a warning if bounds leave a column fewer than FINE_STEPS grid steps a standard deviation, by
    `spreads`. It names such columns, with the distance of right bounds where these are nearer."""
    widest = max(one.half_range for one in columns)
    coarse, remedies = [], set[str]()
    for one in columns:
        known = spreads.get(one.name)
        if known is None or _unit(known.unit) != _unit(one.unit):
            continue
        half_range = widest if scaling is Scaling.NONE else one.half_range
        steps = known.spread * grid_steps / half_range
        if steps >= FINE_STEPS:
            continue
        unit, right = "" if one.unit in ONE else f" {one.unit}", RIGHT_SPREADS * known.spread
        nearer = right < 2 * half_range
        coarse.append(f"{one.name} ({steps:.2g} steps{f'; {right:.2g}{unit} apart' if nearer else ''})")
        remedies.add(
            "bounds about that far apart if all values lie within" if nearer else "a larger grid_steps"
        )
    if not coarse:
        return ()
    which = "the widest bounds" if scaling is Scaling.NONE else "the bounds"
    first = f"{which} leave fewer than {FINE_STEPS} grid steps a standard deviation to {named(coarse)}"
    remedy = " or ".join(sorted(remedies, reverse=True))
    return (f"{first}: rounding of the records adds to the error; use {remedy}",)


def dominating(variances: Mapping[str, float], mean: float | None = None) -> tuple[str, ...]:
    """Return the columns whose variance is at least DOMINATING times the mean, largest first. The `mean` of
    all columns is that of `variances` unless stated."""
    mean = sum(variances.values()) / max(len(variances), 1) if mean is None else mean
    falling = sorted(variances, key=lambda name: -variances[name])
    return tuple(name for name in falling if variances[name] >= DOMINATING * mean > 0)


def differ(columns: Sequence[BoundedColumn]) -> bool:
    """Return True if columns have different units or bounds of different widths."""
    return len({(_unit(one.unit), one.half_range) for one in columns}) > 1


def named(names: Sequence[str], most: int = MOST_NAMED) -> str:
    """Return the first names as a list, with the number of the others."""
    more = [f"{len(names) - most} more"] if len(names) > most else []
    *first, last = [*names[:most], *more]
    return f"{', '.join(first)} and {last}" if first else last


def _units(columns: Iterable[BoundedColumn]) -> tuple[str, ...]:
    """Return the different units, in the order of the columns."""
    return tuple(dict.fromkeys(_unit(one.unit) for one in columns))


def _unit(unit: str) -> str:
    return ONE[1] if unit in ONE else unit
