"""Columns of the records that studies may use, by the settings of the site and the names of columns alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eigenveil.dictionary.site_rules import ANY
from eigenveil_client.records.recoding.rule import Rules
from eigenveil_client.records.tables.names import is_record_number, name_and_unit


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedColumns:
    """Settings of a site about its columns. `allowed`: the names that studies may use, or `ANY`. `named`: the
    columns that something names, so that they must hold numbers. `persons`: the names of the person column,
    in studies and in the records."""

    allowed: tuple[str, ...] = (ANY,)
    named: frozenset[str] = frozenset()
    persons: tuple[str, ...] = ()

    def columns_with_units(self, headers: Sequence[str], rules: Rules) -> dict[str, str | None]:
        """Return the columns that studies may use, with their units if stated, in the order of the records,
        then of the rules."""
        raw = {one for rule in rules for one in (rule.source, rule.by, rule.years_since) if one}
        raw |= {rule.header for rule in rules if rule.levels} | {*self.persons}
        plain = [header for header in headers if not {header, name_and_unit(header)[0]} & raw]
        units = dict(map(name_and_unit, plain)) | {
            name: (*rule.units, None, None)[1] for rule in rules for name in rule.columns
        }
        if ANY in self.allowed:
            return {name: units[name] for name in units if not is_record_number(name, self.persons)}
        return {name: units[name] for name in units if name in self.allowed and name not in self.persons}


EVERY_COLUMN = OfferedColumns()
