"""Proposals of a column of the dictionary for each column of a site: by name, code, unit and value range.

A proposal is certain if its name, unit and values agree and no other column competes; all others are
questions for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from eigenveil.dictionary.dictionary import ColumnType, Dictionary, DictionaryColumn
from eigenveil.errors import Code, RequestError
from eigenveil_client.records.discovery.columns import SeenColumn, example_words
from eigenveil_client.records.discovery.units import same_unit
from eigenveil_client.site.mapping.concepts import (
    CATEGORY_NAMES,
    CONCEPTS,
    LEVEL_WORDS,
    Linear,
    MeasurementConcept,
)
from eigenveil_client.site.mapping.names import NameMatch, joined, loinc_in, match_name

SAME: Linear = (1.0, 0.0)
INSIDE = 0.95  # least share of values in the plausible range
LEAST_VALUES = 10  # numbers with which a range can be judged
NEAR_TYPICAL = 1.5  # a factor beyond usual medians
READABLE = 0.95  # least share of readable cells of a certain match


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedMapping:
    """Proposal that the column `header` of a site is `column` of the dictionary.

    `unit`: theirs, as UCUM, "" if unknown; `units`: all in which it may be, if a person must say. `linear`:
    factor and offset to the dictionary's. `readable`: the share of cells with a value that can be read.
    `levels`: the level of each word, of a category. `reason`: why, without values; `seen`: values, which stay
    at the site. `question`: what a person must decide, without values; empty if the proposal is certain."""

    header: str
    column: str
    unit: str = ""
    linear: Linear = SAME
    readable: float = 1.0
    units: tuple[str, ...] = ()
    levels: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    seen: str = ""
    question: str = ""
    strength: float = 0.0

    @property
    def certain(self) -> bool:
        """True if no person needs to confirm it."""
        return not self.question


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Column of the dictionary with what is known about such measurements, if anything is."""

    column: DictionaryColumn
    concept: MeasurementConcept | None

    @property
    def names(self) -> tuple[str, ...]:
        """All names that mean it."""
        own = (self.column.name,)
        if self.column.type is ColumnType.CATEGORY:
            return (*own, *CATEGORY_NAMES.get(self.column.name, ()))
        return own if self.concept is None else (*own, self.concept.name, *self.concept.names)

    @property
    def plausible(self) -> tuple[float, float]:
        """Range of nearly all values, in the dictionary's unit."""
        one = self.column
        if one.plausible_lower is None or one.plausible_upper is None:
            return one.lower, one.upper
        return one.plausible_lower, one.plausible_upper

    def units(self) -> dict[str, Linear]:
        """Return each unit in which the measurement may be recorded, with its way to the dictionary's."""
        found = {self.column.unit: SAME}
        if self.concept is not None:
            home = next((unit for unit in self.concept.units if same_unit(unit, self.column.unit)), None)
            for unit in self.concept.units if home is not None else ():
                way = self.concept.conversion(unit, home or "")
                if way is not None and not same_unit(unit, self.column.unit):
                    found[unit] = way
        return found

    def typical(self) -> tuple[float, float] | None:
        """Return the bounds of a usual median, in the dictionary's unit; None if they are not known."""
        if self.concept is None:
            return None
        home = next((unit for unit in self.concept.units if same_unit(unit, self.column.unit)), None)
        if home is None:
            return None
        factor, offset = self.concept.conversion(self.concept.unit, home) or SAME
        low, high = (factor * bound + offset for bound in self.concept.typical)
        return low, high


def targets(dictionary: Dictionary) -> tuple[Target, ...]:
    """Return the columns of a dictionary with their concepts, found by code or by name."""
    by_code = {code: one for one in CONCEPTS for code in one.loinc}
    by_name = {joined(name): one for one in CONCEPTS for name in (one.name, *one.names)}
    return tuple(
        Target(column=one, concept=by_code.get(one.loinc or "") or by_name.get(joined(one.name)))
        for one in dictionary.columns
    )


def propose(
    columns: Sequence[SeenColumn], dictionary: Dictionary, *, without: Iterable[str] = ()
) -> list[ProposedMapping]:
    """Return the best proposal for each column that has one, in the order of the columns, those of `without`
    left out. Those that compete for one column of the dictionary become questions."""
    known, left_out = targets(dictionary), set(without)
    best = [
        max(found, key=lambda one: one.strength)
        for column in columns
        if column.header not in left_out and (found := _proposals(column, known))
    ]
    return _contested(best)


def _proposals(column: SeenColumn, known: Sequence[Target]) -> list[ProposedMapping]:
    found = []
    for target in known:
        if target.column.type is ColumnType.CATEGORY:
            proposed = _category(column, target)
        else:
            proposed = _measurement(column, target)
        if proposed is not None:
            found.append(proposed)
    certain = [one for one in found if one.certain]
    if len(certain) > 1:
        named = " or ".join(one.column for one in certain)
        question = f"Is {column.header!r} {named}?"
        found = [replace(one, question=question) if one.certain else one for one in found]
    return found


def _contested(proposals: Sequence[ProposedMapping]) -> list[ProposedMapping]:
    """Return the proposals, with a question for each of several that are for one column of the dictionary;
    uncertain ones do not contest a certain one."""
    certain = Counter(one.column for one in proposals if one.certain)
    result = []
    for one in proposals:
        if certain[one.column] > one.certain:
            others = [other.header for other in proposals if other.column == one.column and other != one]
            named = ", ".join(map(repr, others))
            text = f"Which column is {one.column}: {one.header!r} or {named}?"
            one = replace(one, question=text if one.certain else one.question)
        result.append(one)
    return result


def _named(column: SeenColumn, target: Target) -> tuple[NameMatch | None, float]:
    """Return the fit of a column's name, label or code to a target, and its strength."""
    codes = {target.column.loinc, *(target.concept.loinc if target.concept else ())} - {None}
    if loinc_in(column.header) in codes and codes:
        return NameMatch(exact=True, how="by its LOINC code"), 4.0
    found = match_name(column.header, target.names)
    if found is not None and found.exact:
        return found, 3.0 + (joined(column.header) == joined(target.column.name))
    labelled = match_name(column.label, target.names) if column.label else None
    if labelled is not None and labelled.exact:
        return NameMatch(exact=True, how="by the label above its name"), 2.5
    near = match_name(column.header, target.concept.near) if target.concept and target.concept.near else None
    if near is not None and near.exact:
        return NameMatch(exact=False, how="by a name that may also be something else"), 1.5
    return found, 1.0


def _measurement(column: SeenColumn, target: Target) -> ProposedMapping | None:
    named, strength = _named(column, target)
    if named is None or not column.numbers or column.is_date or column.readable < 0.5:
        return None
    unit = _unit_of(column, target)
    if unit is None and not named.exact:
        return None
    question = _question(column, target, named, unit)
    reason = f"{target.column.name} {named.how}"
    return ProposedMapping(
        header=column.header, column=target.column.name, readable=column.readable,
        unit="" if unit is None else unit.name, linear=SAME if unit is None else unit.linear,
        units=tuple(target.units()) if unit is None or unit.doubt else (),
        reason=reason if unit is None else f"{reason}; {unit.reason}",
        seen=_shown(column), question=question, strength=strength + (unit is not None),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundUnit:
    """Unit of a column, its way to the dictionary's, and why; `doubt` if other units are possible."""

    name: str
    linear: Linear
    reason: str
    doubt: str = ""


def _unit_of(column: SeenColumn, target: Target) -> FoundUnit | None:
    """Return the unit in which a column's values are plausible; None if there is none."""
    units, typical = target.units(), target.typical()
    fits = {name: way for name, way in units.items() if _inside(column, target.plausible, way)}
    rare = target.concept.rare if target.concept is not None and not column.unit else frozenset[str]()
    if fits.keys() - rare:
        fits = {name: way for name, way in fits.items() if name not in rare}
    usual = {name for name, way in fits.items() if typical is not None and _is_typical(column, typical, way)}
    stated = next((name for name in units if column.unit and same_unit(name, column.unit)), None)
    if column.unit:
        if stated is None or stated not in fits:
            return None
        reason = f"its unit is stated as {column.unit}, and its values are plausible in it"
        other = usual - {stated}
        doubt = (
            "" if stated in usual or not other else f"its values are more usual in {', '.join(sorted(other))}"
        )
        return FoundUnit(name=stated, linear=units[stated], reason=reason, doubt=doubt)
    if len(usual) == 1:
        (name,) = usual
        doubt = f"{name} is rare" if name in rare else ""
        shown = name or "no unit"
        return FoundUnit(
            name=name, linear=units[name], doubt=doubt, reason=f"its values are usual in {shown} alone"
        )
    if fits:
        name = target.column.unit if target.column.unit in (usual or fits) else next(iter(usual or fits))
        if len(fits) == 1 and (typical is None or _is_typical(column, _widened(typical), fits[name])):
            return FoundUnit(
                name=name, linear=units[name], reason="its values are plausible in no other unit"
            )
        possible = " or ".join(sorted(usual or fits)) or "no unit"
        doubt = f"its unit is not stated, and its values may be in {possible}"
        return FoundUnit(name=name, linear=units[name], reason="its values are plausible", doubt=doubt)
    return None


def _inside(column: SeenColumn, plausible: tuple[float, float], way: Linear) -> bool:
    """Return True if nearly all values lie in a range, as far as the quantiles tell."""
    if not column.quantiles:
        return False
    factor, offset = way
    low, high = plausible
    slack = 1e-9 * max(abs(low), abs(high))
    ends = [factor * column.quantiles[place] + offset for place in (2, -3)]  # of the middle 90 %
    return low - slack <= min(ends) and max(ends) <= high + slack


def _is_typical(column: SeenColumn, typical: tuple[float, float], way: Linear) -> bool:
    middle = column.median
    return middle is not None and typical[0] <= way[0] * middle + way[1] <= typical[1]


def _widened(typical: tuple[float, float]) -> tuple[float, float]:
    """Return wider bounds of a median, where no other unit is possible."""
    return typical[0] / NEAR_TYPICAL, typical[1] * NEAR_TYPICAL


def _question(column: SeenColumn, target: Target, named: NameMatch, unit: FoundUnit | None) -> str:
    """Return what a person must decide about a match; empty if all agrees."""
    name, header = target.column.name, repr(column.header)
    if unit is None:
        return (
            f"{header} is called like {name}, but its values are plausible in no unit of it. In which is it?"
        )
    if not named.exact:
        return f"Is {header} the dictionary's {name}, in {unit.name or 'no unit'}?"
    if unit.doubt:
        return f"{header} is called like {name}, but {unit.doubt}. Which unit is it?"
    if column.numbers < LEAST_VALUES:
        return f"{header} has too few values to check. Is it {name}, in {unit.name or 'no unit'}?"
    if column.readable < READABLE:
        return f"Many cells of {header} are no numbers. Is it {name}, in {unit.name or 'no unit'}?"
    if _no_spread(column):
        return f"{header} has one value alone. Is it {name}, in {unit.name or 'no unit'}?"
    return ""


def _no_spread(column: SeenColumn) -> bool:
    return column.quantiles[0] == column.quantiles[-1]


def _shown(column: SeenColumn) -> str:
    """Return a column's values in a few words, for people at the site."""
    if not column.quantiles:
        return ", ".join(map(repr, example_words(column))) or "no values"
    low, middle, high = (column.quantiles[place] for place in (2, 4, -3))
    return f"half of the values are at most {middle:.4g}, most between {low:.4g} and {high:.4g}"


def confirmed(column: SeenColumn, target: Target, unit: str = "") -> ProposedMapping:
    """Return the mapping of a column to a target that a person states, in a `unit` as people write it ("" for
    the one that is stated in the header or that the values leave no doubt of).

    Raises RequestError: code `bad-argument`, the unit is unknown, or must be stated; or the words of a
    category are not its levels."""
    name, reason = target.column.name, f"{target.column.name} as a person stated"
    if target.column.type is ColumnType.CATEGORY:
        levels = tuple(
            (word, level) for word, _ in column.frequent if (level := _level(word, target.column.levels))
        )
        if not levels:
            wanted = ", ".join(target.column.levels)
            why = f"none of the words of {column.header!r} is a level of {name} ({wanted})"
            raise RequestError(Code.BAD_ARGUMENT, f"{why}. Write [column.{name}] with values into site.toml")
        return ProposedMapping(
            header=column.header, column=name, levels=levels, reason=reason, seen=_shown(column)
        )
    units = target.units()
    found = _unit_of(column, target) if not unit else None
    stated = next((one for one in units if unit and (one == unit or same_unit(one, unit))), None)
    if not unit and found is not None and not found.doubt:
        stated = found.name
    if stated is None:
        known = ", ".join(one or "(no unit)" for one in units)
        why = (
            f"{name} cannot be converted from {unit!r}"
            if unit
            else f"the unit of {column.header!r} is not clear"
        )
        raise RequestError(Code.BAD_ARGUMENT, f"{why}. State one of {known}: {column.header}={name}:UNIT")
    return ProposedMapping(
        header=column.header, column=name, unit=stated, linear=units[stated], readable=column.readable,
        reason=f"{reason}, in {stated}" if stated else reason, seen=_shown(column),
    )  # fmt: skip


def _category(column: SeenColumn, target: Target) -> ProposedMapping | None:
    """Return the proposal of a column of words for a category."""
    named, strength = _named(column, target)
    if (
        named is None
        or not column.filled
        or column.is_date
        or column.distinct > 3 * len(target.column.levels) + 6
    ):
        return None
    words = dict(column.frequent)
    level_of = {word: level for word in words if (level := _level(word, target.column.levels)) is not None}
    known = sum(words[word] for word in level_of) / max(1, sum(words.values()))
    name, header = target.column.name, repr(column.header)
    reason, question = f"{name} {named.how}", ""
    if not named.exact:
        question = f"Is {header} the dictionary's {name}?"
    elif known < INSIDE:
        question = f"{header} is called like {name}. Which of its words is which of its levels?"
    else:
        reason = f"{reason}, and its words are its levels"
    return ProposedMapping(
        header=column.header, column=name, readable=known, levels=tuple(level_of.items()), reason=reason,
        seen=", ".join(map(repr, list(words)[:5])), question=question, strength=strength + known,
    )  # fmt: skip


def _level(word: str, levels: Sequence[str]) -> str | None:
    """Return the level that a word means; None if it means none of them, or several."""
    same = [level for level in levels if word.casefold() == level.casefold()]
    if same:
        return same[0]
    found = [level for level in levels if word.casefold() in LEVEL_WORDS.get(level.casefold(), ())]
    return found[0] if len(found) == 1 else None
