"""Mapping of a site as it stands in site.toml: for each column of a study the column of the records behind
it, its unit and factor, and the share of cells that can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eigenveil.dictionary.dictionary import LEVEL_SEPARATOR
from eigenveil_client.records.column_quality import Bounds, ColumnProfile, PlausibleRange
from eigenveil_client.records.discovery.columns import SeenColumn
from eigenveil_client.records.isolated import reader
from eigenveil_client.records.recoding.rule import ColumnRule
from eigenveil_client.records.tables.source import Headers
from eigenveil_client.site.config import SiteConfig, dictionary_in_force, plausible_ranges
from eigenveil_client.site.mapping.first_look import NOBODY, FirstLook, look_first
from eigenveil_client.site.mapping.matching import ProposedMapping
from eigenveil_client.site.mapping.targets import Target, targets

CLOSE = 1e-6  # relative difference of two factors of one unit


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedColumn:
    """Column of the records, the column of a study that it becomes, its unit ("" if it is not known), factor
    and offset, and the share of filled cells of persons that can be read (None: of no person). `problem`: why
    it cannot be read. `plausible`: the share of the read ones in the range of the site's dictionary."""

    header: str
    column: str
    unit: str
    factor: float
    offset: float
    readable: float | None
    problem: str = ""
    known: bool = True
    plausible: float | None = None


def mapping_in_force(config: SiteConfig) -> list[MappedColumn]:
    """Return the mapping in force, with what the records hold now. Raises RequestError: the records or the
    dictionary cannot be read."""
    known = _targets(config)
    rules = {name: rule for rule in config.column for name in rule.columns}
    bounds = plausible_bounds(config)
    profiles = _profiles(config, bounds)
    return [_row(rules[one.name], known.get(one.name), one, bounds[one.name]) for one in profiles]


def missing_persons(config: SiteConfig, names: Sequence[str]) -> dict[str, int]:
    """Return the numbers of persons without a value in some columns of studies. Raises as
    `mapping_in_force`."""
    profiles = _profiles(config, dict.fromkeys(names))
    return {one.name: one.quality.missing if one.quality else 0 for one in profiles}


def plausible_bounds(config: SiteConfig) -> dict[str, Bounds | None]:
    """Return the plausible range of each mapped column, if there is one in its unit. Raises RequestError: the
    dictionary cannot be read."""
    known, ranges = _targets(config), plausible_ranges(config)
    rules = {name: rule for rule in config.column for name in rule.columns}
    return {name: _range(rule, known.get(name), ranges.get(name)) for name, rule in rules.items()}


def _profiles(config: SiteConfig, bounds: Mapping[str, Bounds | None]) -> list[ColumnProfile]:
    person = config.person_header or None
    return reader.profile(config.records, config.column, bounds, person, config.engine.reading)


def _targets(config: SiteConfig) -> dict[str, Target]:
    """Return the columns of the dictionary, of a category by each of its levels."""
    return {
        name: target
        for target in targets(dictionary_in_force(config))
        for name in (one.name for one in target.column.columns)
    }


def _range(rule: ColumnRule, target: Target | None, one: PlausibleRange | None) -> Bounds | None:
    """Return a plausible range, if there is one in the unit of the column of studies."""
    if one is None or (target is not None and target.column.levels):
        return None
    unit = rule.units[1] if rule.units else "" if target is None else target.column.unit
    return (one.lower, one.upper) if unit == one.unit else None


def _row(
    rule: ColumnRule, target: Target | None, found: ColumnProfile, bounds: Bounds | None
) -> MappedColumn:
    factor, offset = rule.linear
    share, plausible, quality = None, None, found.quality
    if quality is not None:
        valued = quality.persons - quality.missing
        filled = valued + quality.unreadable
        share = valued / filled if filled else None
        plausible = (valued - quality.outside) / valued if valued and bounds else None
    return MappedColumn(
        header=rule.header, column=found.name, unit=_unit(rule, target), factor=factor, offset=offset,
        readable=share, problem=found.problem or "", known=target is not None,
        plausible=plausible,
    )  # fmt: skip


def _unit(rule: ColumnRule, target: Target | None) -> str:
    """Return the unit of the records that a rule converts from, as far as it is known."""
    if rule.units:
        return rule.units[0]
    if target is None or target.column.levels:
        return ""
    for unit, linear in target.units().items():
        if all(map(_close, rule.linear, linear)):
            return unit
    return ""


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= CLOSE * max(1.0, abs(other))


def unmapped_headers(config: SiteConfig) -> tuple[str, ...]:
    """Return the columns of the records behind no rule, but the person's. Raises RequestError: the records
    cannot be read."""
    headers = reader.columns(config.records, config.engine.reading)
    named = _named(config)
    if config.person_header:
        named.add(Headers(headers).find(config.person_header).strip())
    return tuple(one for one in headers if one.strip() and one.strip() not in named)


def still_open(config: SiteConfig, look: FirstLook) -> tuple[ProposedMapping, ...]:
    """Return the proposals whose column of the records, and of the dictionary, is in no rule."""
    names = {name for rule in config.column for name in rule.columns}
    names |= {name.partition(LEVEL_SEPARATOR)[0] for name in names}
    headers = _named(config)
    return tuple(
        one for one in look.proposals if one.header.strip() not in headers and one.column not in names
    )


def mappings_of_rules(
    config: SiteConfig, look: FirstLook, confirmed: Sequence[ProposedMapping] = ()
) -> tuple[ProposedMapping, ...]:
    """Return the mapping that each rule states, of a category one for all levels: the proposal or `confirmed`
    mapping that is the same, or else one of the rule alone."""
    seen = {one.header.strip(): one for one in look.table.columns}
    known = {one.column.name: one for one in targets(look.dictionary)}
    same = {(one.header.strip(), one.column): one for one in (*look.proposals, *confirmed)}
    found = dict[tuple[str, str], ProposedMapping]()
    for rule in config.column:
        key = rule.header, rule.name.partition(LEVEL_SEPARATOR)[0]
        if key in found or rule.header not in seen:
            continue
        one, (header, column) = same.get(key), key
        if one is None or not all(map(_close, rule.linear, one.linear)):
            one = ProposedMapping(
                header=seen[header].header, column=column, unit=_unit(rule, known.get(column)),
                linear=rule.linear, readable=_readable(rule, seen[header]), reason="as site.toml states",
            )  # fmt: skip
        found[key] = one
    return tuple(found.values())


def _readable(rule: ColumnRule, seen: SeenColumn) -> float:
    """Return the share of the cells with a value that a rule reads, as far as a look tells."""
    words = {*rule.levels, *(word for word, _ in rule.values)}
    worded = sum(times for word, times in seen.frequent if word in words)
    read = worded if words else seen.dates if rule.years_since else seen.numbers
    return read / seen.filled if seen.filled else 0.0


def _named(config: SiteConfig) -> set[str]:
    """Return the columns of the records that rules name, without blanks around them."""
    rules = config.column
    return {one.strip() for rule in rules for one in (rule.header, rule.years_since, rule.by) if one}


def look_again(config: SiteConfig) -> FirstLook:
    """Return what is found in the records now, of the source and with the person column that site.toml
    states. Raises as `look_first`."""
    look = look_first(config.records, dictionary_in_force(config), limits=config.engine.reading)
    return look.with_person(config.person_header or NOBODY)
