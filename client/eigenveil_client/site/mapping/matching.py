"""Proposals of a column of the dictionary for each column of a site: by name, code, unit and value range.

A proposal is certain if its name, unit and values agree and no other column competes; all others are
questions for a person. Values are compared with the packaged dictionary's ranges and levels alone: with those
of a federation's dictionary, whoever publishes it could ask where the values lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eigenveil.dictionary.dictionary import ColumnType, Dictionary, listed
from eigenveil.errors import Code, RequestError
from eigenveil_client.records.discovery.columns import SeenColumn, example_words
from eigenveil_client.records.tables.units import same_unit
from eigenveil_client.site.mapping.age_unit import age_questions
from eigenveil_client.site.mapping.levels import levels_of_words, stated_levels
from eigenveil_client.site.mapping.measurements.concepts import Linear
from eigenveil_client.site.mapping.measurements.names import (
    NameMatch,
    joined,
    loinc_in,
    match_name,
    may_count_measurements,
)
from eigenveil_client.site.mapping.targets import SAME, Target, targets

INSIDE = 0.95  # least share of values in the plausible range
LEAST_VALUES = 10  # numbers with which a range can be judged
NEAR_TYPICAL = 1.5  # a factor beyond usual medians
FEW = 50  # a number of cells below it may be a number of measurements
READABLE = 0.95  # least share of readable cells of a certain match


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedMapping:
    """Proposal that the column `header` of a site is `column` of the dictionary.

    `unit`: theirs, as UCUM, "" if unknown; `units`: all in which it may be, if a person must say. `linear`:
    factor and offset to the dictionary's. `readable`: the share of cells with a value that can be read.
    `levels`: the level of each word, of a category; `coded`: its words are none. `reason`: why, without
    values; `seen`: values, which stay at the site. `question`: what a person must decide, without values;
    empty if the proposal is certain."""

    header: str
    column: str
    unit: str = ""
    linear: Linear = SAME
    readable: float = 1.0
    units: tuple[str, ...] = ()
    levels: tuple[tuple[str, str], ...] = ()
    coded: bool = False
    reason: str = ""
    seen: str = ""
    question: str = ""
    strength: float = 0.0

    @property
    def certain(self) -> bool:
        """True if no person needs to confirm it."""
        return not self.question

    @property
    def open_text(self) -> str:
        """Text for a person who may set it."""
        return self.question or f"{self.header!r} may be {self.reason}."

    @property
    def setting(self) -> str:
        """Text that sets it with `map --set`, with what a person must say in capital letters."""
        coded = ":WORD=LEVEL,WORD=LEVEL" if self.coded else ""
        return f"{self.header}={self.column}{':UNIT' if len(self.units) > 1 else coded}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for output, without values of the records."""
        return {
            "header": self.header, "column": self.column, "unit": self.unit, "factor": self.linear[0],
            "offset": self.linear[1], "readable": self.readable, "reason": self.reason,
            "question": self.question,
        }  # fmt: skip


def propose(
    columns: Sequence[SeenColumn],
    dictionary: Dictionary,
    *,
    without: Iterable[str] = (),
    selected: Mapping[str, str] | None = None,
) -> list[ProposedMapping]:
    """Return the best proposal for each column that has one, in the order of the columns, those of `without`
    left out. Those that compete for one column of the dictionary become questions, as does an age of
    children. `selected`: the columns were selected by codes, each for the column that it names here."""
    known = {one: one.identities for one in targets(dictionary)}
    left_out, named = set(without), {} if selected is None else selected
    best = [
        max(found, key=lambda one: one.strength)
        for column in columns
        if column.header not in left_out and (found := _proposals(column, known, named.get(column.header)))
    ]
    found, seen = _contested(best), {column.header: column for column in columns}
    of = {one.column.name: one for one in known}
    ways = {one.header: one.linear if one.unit else None for one in found}
    texts = age_questions((seen[one.header], of[one.column], ways[one.header]) for one in found)
    return [
        replace(one, units=tuple(of[one.column].units()), question=text) if text and one.certain else one
        for one, text in zip(found, texts, strict=True)
    ]


def _proposals(
    column: SeenColumn, known: Mapping[Target, frozenset[str]], selected: str | None
) -> list[ProposedMapping]:
    found, exact = [], list[Target]()
    for target in known:
        named, strength = _named(column, target) if selected is None else _selected(target, selected)
        if named is None:
            continue
        make = _category if target.column.type is ColumnType.CATEGORY else _measurement
        proposed = make(column, target, named, strength)
        if proposed is not None:
            found.append((target, proposed))
        if named.exact:
            exact.append(target)
    fitting = exact if selected is None else list(known)  # a SELECT takes all with a code
    certain = [one.column for _, one in found if one.certain]
    return [_with_rivals(one, known, target, fitting, certain) for target, one in found]


def _with_rivals(
    one: ProposedMapping,
    known: Mapping[Target, frozenset[str]],
    target: Target,
    fitting: Iterable[Target],
    certain: Sequence[str],
) -> ProposedMapping:
    """Return a proposal as a question if other columns of the dictionary are certain as well, or are of the
    same measurement and fit by name or code, whatever the values are."""
    same = [other.column.name for other in fitting if known[other] & known[target]]
    names = same if len({*same, one.column}) > 1 else certain if one.certain else []
    if len(names) < 2:
        return one
    return replace(one, question=f"Is {one.header!r} {listed(names, ' or ')}?")


def _selected(target: Target, name: str) -> tuple[NameMatch | None, float]:
    """Return the fit of a column that a SELECT has for the column `name` of the dictionary."""
    if target.column.name != name:
        return None, 0.0
    if target.of_person:
        return NameMatch(exact=True, how="of OMOP's table person"), 4.0
    how = f"by LOINC {target.unknown_code}, which is not known here"
    if not target.unknown_code and target.concept is not None:
        how = f"by the codes of {target.concept.name} (LOINC {', '.join(target.codes)})"
    return NameMatch(exact=True, how=how, by_code=True), 4.0


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
    code = loinc_in(column.header)
    if code is not None and code in target.codes:
        return NameMatch(exact=True, how=f"by LOINC {code} in its name", by_code=True), 4.0
    found = match_name(column.header, target.names)
    if found is not None and found.exact:
        own = match_name(column.header, (target.column.name,))
        how = "by its name" if own is not None and own.exact else f"by {target.evidence}"
        return replace(found, how=how), 3.0 + (joined(column.header) == joined(target.column.name))
    labelled = match_name(column.label, target.names) if column.label else None
    if labelled is not None and labelled.exact:
        return NameMatch(exact=True, how="by the label above its name"), 2.5
    near = match_name(column.header, target.near) if target.near else None
    if near is not None and near.exact:
        return NameMatch(exact=False, how="by a name that may also be something else"), 1.5
    return found, 1.0


def _measurement(
    column: SeenColumn, target: Target, named: NameMatch, strength: float
) -> ProposedMapping | None:
    if not column.numbers or column.is_date or column.readable < 0.5:
        return None
    unit = _unit_of(column, target)
    if unit is None and not named.exact:
        return None
    question = _question(column, target, named, unit)
    reason = f"{target.column.name} {named.how}"
    if not named.exact and unit is not None and (typical := target.typical()) is not None:
        strength += 0.25 * _is_typical(column, typical, unit.linear)  # of two meanings the likelier is asked
    return ProposedMapping(
        header=column.header, column=target.column.name, readable=column.readable,
        unit="" if unit is None else unit.name, linear=SAME if unit is None else unit.linear,
        units=tuple(filter(None, target.units())) if unit is None or unit.doubt else (),
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
    """Return the unit in which a column's values are plausible, or the stated one where no range is known
    here; None if there is none."""
    units, typical, plausible = target.units(), target.typical(), target.plausible
    stated = next((name for name in units if column.unit and same_unit(name, column.unit)), None)
    if plausible is None:
        return _unit_alone(column, target, stated)
    fits = {name: way for name, way in units.items() if _inside(column, plausible, way)}
    usual = {name for name, way in fits.items() if typical is not None and _is_typical(column, typical, way)}
    rare = target.concept.rare if target.concept is not None and not column.unit else frozenset[str]()
    common = {name: way for name, way in fits.items() if name not in rare}
    # A rare unit in which the values would be usual is possible, unless a common one is the same.
    usual -= {name for name in rare & usual if fits[name] in common.values()}
    if common and not usual & rare:
        fits = common
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


def _unit_alone(column: SeenColumn, target: Target, stated: str | None) -> FoundUnit | None:
    """Return the unit of a measurement whose values cannot be judged here: the one that is stated."""
    if stated is not None:
        return FoundUnit(
            name=stated, linear=target.units()[stated], reason=f"its unit is stated as {column.unit}"
        )
    if column.unit:
        return None
    return FoundUnit(
        name=target.column.unit, linear=SAME, reason="its unit is not stated",
        doubt="its unit is not stated, and its usual values are not known",
    )  # fmt: skip


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
    if target.doubt:
        return f"The dictionary's {name} is in doubt: {target.doubt}. Is {header} meant?"
    if named.by_code and target.unknown_code:
        return f"LOINC {target.unknown_code} is not known here. Is {header} the dictionary's {name}?"
    if unit is None:
        return (
            f"{header} is called like {name}, but its values are plausible in no unit of it. In which is it?"
        )
    if not named.exact:
        return f"Is {header} the dictionary's {name}, in {unit.name or 'no unit'}?"
    if unit.doubt and any(target.units()):
        return f"{header} is called like {name}, but {unit.doubt}. Which unit is it?"
    if unit.doubt:
        return f"Is {header} the dictionary's {name}? Its usual values are not known here."
    if column.numbers < LEAST_VALUES:
        return f"{header} has too few values to check. Is it {name}, in {unit.name or 'no unit'}?"
    if column.readable < READABLE:
        return f"Many cells of {header} are no numbers. Is it {name}, in {unit.name or 'no unit'}?"
    if (
        column.whole
        and not column.unit
        and (column.median or 0) < FEW
        and may_count_measurements(column.header)
    ):
        return f"{header} may be the number of measurements of {name}. Is it {name}, in {unit.name}?"
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
    the one that is stated in the header or that the values leave no doubt of). Of a category `unit` has the
    level of each word, such as "1=male,2=female"; "" for words that are levels.

    Raises RequestError: code `bad-argument`, the unit is unknown, or must be stated; or the words of a
    category are not its levels."""
    name, reason = target.column.name, f"{target.column.name} as a person stated"
    if target.column.type is ColumnType.CATEGORY:
        levels = stated_levels(column, target, unit)
        return ProposedMapping(
            header=column.header, column=name, levels=levels, reason=reason, seen=_shown(column)
        )
    units = target.units()
    found = _unit_of(column, target) if not unit else None
    stated = next((one for one in units if unit and (one == unit or same_unit(one, unit))), None)
    if not unit and found is not None and (not found.doubt or not any(units)):
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


def _category(
    column: SeenColumn, target: Target, named: NameMatch, strength: float
) -> ProposedMapping | None:
    """Return the proposal of a column of words for a category."""
    if not column.filled or column.is_date or column.distinct > 3 * len(target.column.levels) + 6:
        return None
    words = dict(column.frequent)
    level_of = levels_of_words(words, target.column.levels)
    known = sum(words[word] for word in level_of) / max(1, sum(words.values()))
    name, header = target.column.name, repr(column.header)
    reason, question = f"{name} {named.how}", ""
    if not named.exact or not target.usual_levels:
        question = f"Is {header} the dictionary's {name}, with its levels?"
    elif known < INSIDE:
        question = f"{header} is called like {name}. Which of its words is which of its levels?"
    else:
        reason = f"{reason}, and its words are its levels"
    return ProposedMapping(
        header=column.header, column=name, readable=known, levels=tuple(level_of.items()), reason=reason,
        coded=not level_of, seen=", ".join(map(repr, list(words)[:5])), question=question,
        strength=strength + known,
    )  # fmt: skip
