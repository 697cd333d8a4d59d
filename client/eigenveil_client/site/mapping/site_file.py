"""Text of a first site.toml from what was found in the records. Comments say why, and quote no value: the
file is read by many people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eigenveil.dictionary.site_rules import ANY
from eigenveil_client.records.discovery.words import Marks
from eigenveil_client.records.recoding.rule import FROM
from eigenveil_client.records.tables.source import COMMAS, RecordsConfig
from eigenveil_client.site.mapping.first_look import FirstLook
from eigenveil_client.site.mapping.matching import ProposedMapping
from eigenveil_client.site.mapping.promises import EPSILON
from eigenveil_client.site.mapping.rules import (
    Keys,
    MadeTables,
    mapping_reason,
    missing_reason,
    proposed_tables,
    usable_names,
)
from eigenveil_client.site.mapping.toml_tables import comment_line, key_lines, question_line, table_text

WIDTH = 108
MOST_OTHERS = 1000  # columns without a dictionary that are listed by name
PROMISES = (
    "Promises about the records, which others may read. init and eigenveil-site sizes propose half and twice "
    f"the number of persons, noised once (epsilon {EPSILON:g}, charged to the budget), with room for the "
    "noise, rounded to 1, 2 or 5 times a power of ten."
)
OFFERS = "Columns that the federation is told of: none until a person states the mapped ones (map --offer)."


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFile:
    """Settings of a first site.toml: the keys before the tables, what was found, the mappings that are in
    force. `others`: studies may also use columns of numbers that no dictionary has, as a federation without a
    dictionary does. `missing` and `tables`: the words for "no value" in the whole file, and the tables of the
    mappings."""

    stated: Mapping[str, Any]
    look: FirstLook
    accepted: tuple[ProposedMapping, ...]
    others: bool = False
    missing: tuple[str, ...] = field(init=False)
    tables: MadeTables = field(init=False)

    def __post_init__(self) -> None:
        missing, tables = proposed_tables(self.look, self.accepted)
        object.__setattr__(self, "missing", missing)
        object.__setattr__(self, "tables", tables)

    @property
    def mapped(self) -> tuple[str, ...]:
        """The columns of the dictionary that the mappings make."""
        return tuple(dict.fromkeys(name for _, one in self.tables for name in usable_names(one)))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that studies may use: those of the mappings, and others if these are not too many."""
        return tuple(dict.fromkeys([*self.mapped, *(() if self.unlisted else self._others())]))

    @property
    def unlisted(self) -> int:
        """The number of other columns of numbers, if they are too many to be listed."""
        many = len(list(self._others()))
        return many if many > MOST_OTHERS else 0

    def _others(self) -> Iterator[str]:
        """Yield the columns of numbers that are neither mapped nor in question, nor an identifier. A column
        named `*` is none: it would allow every other one."""
        if not self.others:
            return
        used = {one.header.strip() for one in self.look.proposals} | {ANY}
        used |= {
            str(keys.get(key)) for _, one in self.tables for keys in one.values() for key in (FROM, "by")
        }
        for one in self.look.table.columns:
            identifies = one.whole and one.distinct == one.filled > 1
            numeric = one.numbers and one.numbers == one.filled and not one.codes and not one.absent_words
            plain = one.marks in (Marks(), _marks(self.look.table.config))
            if numeric and plain and not identifies and one.header.strip() not in used:
                yield one.header.strip()

    def text(self) -> str:
        """Return the file."""
        parts = [self._top(), self._records()]
        named = f"{self.look.dictionary.name} (version {self.look.dictionary.version})"
        parts.append(
            comment(f"Columns of the records as columns of the dictionary {named}: eigenveil-site map.")
        )
        for mapping, tables in self.tables:
            why = (
                "age as the years since the date of birth" if mapping is None else self._why(mapping, tables)
            )
            parts += [
                table_text(name, keys, textwrap.wrap(why, WIDTH - 2) if first else ())
                for first, (name, keys) in zip([True, *[False] * len(tables)], tables.items(), strict=False)
            ]
        accepted = {one.header for one in self.accepted}
        taken = {one.column for one in self.accepted}
        questions = [one for one in self.look.open if one.header not in accepted and one.column not in taken]
        if questions:
            parts.append("\n".join(question_line(one.setting, one.question) for one in questions) + "\n")
        return "\n".join(parts)

    def _top(self) -> str:
        """Return the keys before the tables, with comments above some of them."""
        keys = {**self.stated, "columns": self.stated.get("columns", self.columns), "offers": ()}
        above = {"offers": OFFERS, "minimum_records": PROMISES}
        lines = [
            (f"{comment(above[name])}\n" if name in above else "") + key_lines({name: value})
            for name, value in keys.items()
        ]
        return "".join(lines)

    def _records(self) -> str:
        config, person = self.look.table.config, self.look.person
        why = [f"Found: {one}." for one in (self.look.taken, *self.look.table.evidence) if one]
        if person is not None:
            why.append(f"{person.header} names the person: {person.evidence}.")
        if self.look.rows is not None:
            why.append(f"Of several rows of a person {self.look.rows.text}. It is a choice of the analysis.")
        why.append(missing_reason(self.missing, self.look.table.columns))
        keys = records_keys(config)
        keys |= {} if person is None else {"person": person.header.strip()}
        keys |= {"missing": list(self.missing)} if self.missing else {}
        return "\n".join([*map(comment, filter(None, why)), "[records]", key_lines(keys)])

    def _why(self, mapping: ProposedMapping, tables: Mapping[str, Keys]) -> str:
        seen = [one for one in self.look.table.columns if one.header == mapping.header]
        return mapping_reason(mapping, seen[0], tables)


def _marks(config: RecordsConfig) -> Marks:
    return Marks(decimal=config.dialect.decimal, thousands=config.dialect.thousands)


def comment(text: str) -> str:
    """Return a text as lines of a comment."""
    return "\n".join(map(comment_line, textwrap.wrap(text, WIDTH - 2)))


def records_keys(config: RecordsConfig) -> Keys:
    """Return the keys of [records] that differ from their defaults."""
    keys: Keys = {}
    if config.source is not None:
        keys["source"] = str(config.source)
    for name in ("database", "sql", "table", "sheet", "one_row_per"):
        if value := getattr(config, name):
            keys[name] = value
    if config.sql_file is not None:
        keys["sql_file"] = str(config.sql_file)
    if config.header_line != 1:
        keys["header_line"] = config.header_line
    if config.units_below_header:
        keys["units_below_header"] = True
    for name in ("separator", "decimal", "thousands", "encoding"):
        if (value := getattr(config.dialect, name)) != getattr(COMMAS, name):
            keys[name] = value
    return keys
