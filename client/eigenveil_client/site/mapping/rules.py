"""Rules `[column.NAME]` of proposed mappings, as the keys of site.toml."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from eigenveil.dictionary.dictionary import LEVEL_SEPARATOR, Dictionary, DictionaryColumn
from eigenveil_client.records.discovery.columns import SeenColumn
from eigenveil_client.records.discovery.words import ISO, Marks
from eigenveil_client.records.recoding.rule import FROM
from eigenveil_client.records.tables.codes import number
from eigenveil_client.records.tables.source import Dialect
from eigenveil_client.site.mapping.first_look import FirstLook
from eigenveil_client.site.mapping.matching import ProposedMapping
from eigenveil_client.site.mapping.row_choice import RowChoice, is_birth, row_choice
from eigenveil_client.site.mapping.targets import SAME

Keys = dict[str, Any]  # of one table [column.NAME]
DIGITS = 12  # of a factor
AGE = "age"
UNCLEAR = "Words that may be a value stand among its numbers: eigenveil-site check names those that remain."


def missing_everywhere(columns: Iterable[SeenColumn]) -> tuple[str, ...]:
    """Return the words that mean "no value" in the whole file: those that are a value nowhere, and negative
    codes of several columns that are a value in none."""
    seen = list(columns)
    absent = {word for one in seen for word in one.absent_words}
    codes = Counter(code for one in seen for code in one.codes if (number(code) or 0) < 0)
    valued = [one.quantiles[0] for one in seen if one.quantiles]
    several = {
        code for code, times in codes.items() if times > 1 and (number(code) or 0) < min(valued, default=0)
    }
    folded = {word.lower(): word for word in sorted(absent, reverse=True)}  # one of those that differ in case
    return (*sorted(folded.values()), *sorted(several))


def missing_reason(missing: Collection[str], columns: Iterable[SeenColumn]) -> str:
    """Return why words mean "no value" in some columns, without the words or counts; empty for no word."""
    seen = list(columns)
    kinds = {
        "usual words for it": {word for one in seen for word in one.absent_words},
        "numbers that lie apart from all values": {word for one in seen for word in one.codes},
        "known words for a pending or missing result": {word for one in seen for word in one.fillers},
    }
    found = [why for why, words in kinds.items() if words & set(missing)]
    return f"Taken as no value (missing): {'; '.join(found)}." if found else ""


def mapping_reason(mapping: ProposedMapping, column: SeenColumn, tables: Mapping[str, Keys]) -> str:
    """Return the comment above the tables of a mapping."""
    keys = next(iter(tables.values()))
    parts = [f"{mapping.header}: {mapping.reason}.", missing_reason(keys.get("missing", ()), [column])]
    if column.unclear and not {"levels", "values"} & keys.keys():
        parts.append(UNCLEAR)
    return " ".join(filter(None, parts))


def rule_tables(
    mapping: ProposedMapping,
    column: SeenColumn,
    known: DictionaryColumn,
    dialect: Dialect,
    *,
    everywhere: Sequence[str] = (),
    rows: RowChoice | None = None,
) -> dict[str, Keys]:
    """Return the tables of a mapping, by the names of columns: one, or one for each level of a category whose
    words differ from its levels."""
    keys: Keys = {FROM: column.header.strip()}
    stated = {word.lower() for word in everywhere}
    words = (*column.absent_words, *column.codes, *(() if known.levels else column.fillers))
    missing = [word for word in words if word.lower() not in stated]
    if missing:
        keys["missing"] = sorted(set(missing))
    if known.levels:
        return _category_tables(mapping, known, keys, rows)
    if column.numbers and column.marks != Marks(decimal=dialect.decimal, thousands=dialect.thousands):
        keys |= {"decimal": column.marks.decimal, "thousands": column.marks.thousands}
    if column.censored:
        keys["censored"] = "half"
    keys |= linear_keys(mapping.linear)
    return {mapping.column: keys | (rows.keys(words=False) if rows else {})}


def linear_keys(linear: tuple[float, float]) -> Keys:
    """Return the keys of a conversion, none if it changes nothing."""
    factor, offset = (float(f"{value:.{DIGITS}g}") for value in linear)
    keys: Keys = {} if factor == SAME[0] else {"factor": factor}
    return keys if offset == SAME[1] else keys | {"offset": offset}


def _category_tables(
    mapping: ProposedMapping, known: DictionaryColumn, keys: Keys, rows: RowChoice | None
) -> dict[str, Keys]:
    many = rows.keys(words=True) if rows else {}
    levels = dict(mapping.levels)
    if all(word == level for word, level in levels.items()) and set(levels) == set(known.levels):
        return {mapping.column: keys | {"levels": list(known.levels)} | many}
    return {
        f"{mapping.column}{LEVEL_SEPARATOR}{level}": keys
        | {"values": {word: int(of == level) for word, of in levels.items()}}
        | many
        for level in known.levels
    }


def age_from_birth(
    columns: Sequence[SeenColumn], dictionary: Dictionary, rows: RowChoice | None
) -> Keys | None:
    """Return the keys of the column age as the years from a date of birth to the date of a visit; None if the
    table has not exactly one of each, in one form, or the dictionary has no such column."""
    wanted = [one for one in dictionary.columns if one.name == AGE and one.unit == "a"]
    births = [one for one in columns if one.is_date and is_birth(one)]
    visits = row_choice(columns)
    if not wanted or len(births) != 1 or not visits.by or visits.form != births[0].date_form:
        return None
    keys: Keys = {FROM: visits.by, "years_since": births[0].header.strip()}
    if visits.form != ISO:
        keys["dates"] = visits.form
    return keys | (visits.keys(words=False) if rows else {})


MadeTables = list[tuple[ProposedMapping | None, dict[str, Keys]]]  # None: of no proposal


def proposed_tables(
    look: FirstLook, mappings: Sequence[ProposedMapping]
) -> tuple[tuple[str, ...], MadeTables]:
    """Return the words that mean "no value" in the whole file, and the tables of each of some mappings; also
    those of the age since a date of birth, if nothing else is the age."""
    seen = {one.header: one for one in look.table.columns}
    known = {one.name: one for one in look.dictionary.columns}
    mapped = [seen[one.header] for one in mappings]
    everywhere, dialect = missing_everywhere(mapped), look.table.config.dialect
    found: MadeTables = [
        (
            one,
            rule_tables(
                one, seen[one.header], known[one.column], dialect, everywhere=everywhere, rows=look.rows
            ),
        )
        for one in mappings
    ]
    if not any(one.column == AGE for one in look.proposals):
        age = age_from_birth(look.table.columns, look.dictionary, look.rows)
        found += [(None, {AGE: age})] if age is not None else []
    return everywhere, found


def usable_names(tables: Mapping[str, Keys]) -> tuple[str, ...]:
    """Return the columns that studies may name by some tables: of one with levels, each level."""
    return tuple(
        column
        for name, keys in tables.items()
        for column in ([f"{name}{LEVEL_SEPARATOR}{level}" for level in keys.get("levels", ())] or [name])
    )
