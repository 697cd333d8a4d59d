"""Doubt of the unit of an age: sixty may be years or the months of a child of five, which its own values
cannot tell and the persons' size can."""

from __future__ import annotations

from collections.abc import Iterable

from eigenveil_client.records.discovery.columns import SeenColumn
from eigenveil_client.site.mapping.measurements.concepts import Linear
from eigenveil_client.site.mapping.targets import Target

GROWS = frozenset({"body_height", "body_weight", "head_circumference"})


def age_questions(found: Iterable[tuple[SeenColumn, Target, Linear | None]]) -> list[str]:
    """Return what a person must decide about each column, with what it may be and the way from its unit to
    the dictionary's, None where its unit is not known: the unit of an age that states none, if another column
    has half of the persons smaller than is usual for adults; "" for all others."""
    columns = list(found)
    small = next((repr(one[0].header) for one in columns if _is_of_children(*one)), "")
    return [_question(column, target, small) if small else "" for column, target, _ in columns]


def _is_of_children(column: SeenColumn, target: Target, way: Linear | None) -> bool:
    if target.concept is None or target.concept.name not in GROWS:
        return False
    typical, median = target.typical(), column.median
    if typical is None or median is None or way is None:
        return False
    return way[0] * median + way[1] < typical[0]


def _question(column: SeenColumn, target: Target, other: str) -> str:
    if target.concept is None or target.concept.name != "age" or column.unit:
        return ""
    header, units = repr(column.header), " or ".join(target.units())
    return (
        f"{header} is called like {target.column.name}, but {other} has values of children, and the unit of "
        f"{header} is not stated: it may be in {units}. Which unit is it?"
    )
