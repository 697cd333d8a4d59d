"""Changes of a site's mapping, written into its site.toml."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from eigenveil.dictionary.dictionary import LEVEL_SEPARATOR, suggestion
from eigenveil.dictionary.site_rules import ANY
from eigenveil.errors import Code, RequestError
from eigenveil_client.records.discovery.columns import SeenColumn
from eigenveil_client.records.tables.codes import merged, number
from eigenveil_client.records.tables.units import same_unit
from eigenveil_client.site.config import SiteConfig, dictionary_in_force, load, replace_text
from eigenveil_client.site.mapping.first_look import FirstLook
from eigenveil_client.site.mapping.matching import ProposedMapping, confirmed
from eigenveil_client.site.mapping.promises import SizePromises
from eigenveil_client.site.mapping.rules import Keys, mapping_reason, rule_tables, usable_names
from eigenveil_client.site.mapping.table import look_again, missing_persons, plausible_bounds
from eigenveil_client.site.mapping.targets import targets
from eigenveil_client.site.mapping.toml_tables import (
    table_text,
    with_columns,
    with_missing,
    with_names,
    with_number,
    with_tables,
)
from eigenveil_common.files import read_text

# of `map --set`; a header may have "=" and ":" as well
SETTING = re.compile(r"(.*?\S.*?)=\s*([^:=\s]+)\s*(?::(.*))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingSetting:
    """Wish that the column `header` of the records is `column` of the dictionary, in `unit` ("" if the header
    or the values leave no doubt of it)."""

    header: str
    column: str
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeMapping:
    """Mapping that was wished, its column as it was seen, and its tables of site.toml."""

    mapping: ProposedMapping
    seen: SeenColumn
    tables: dict[str, Keys]


def parse_setting(text: str) -> MappingSetting:
    """Return the parts of THEIRS=column[:unit], or of THEIRS=column:word=level,... Raises RequestError: code
    `bad-argument`."""
    found = SETTING.fullmatch(text)
    if found is None:
        forms = "THEIRS=column, THEIRS=column:unit or THEIRS=column:word=level,word=level"
        raise RequestError(Code.BAD_ARGUMENT, f"{text!r} is none of {forms}")
    header, column, unit = (part.strip() for part in found.groups(default=""))
    return MappingSetting(header=header, column=column, unit=unit)


def apply_changes(
    config_file: Path, settings: Sequence[MappingSetting], removed: Sequence[str]
) -> tuple[str, ...]:
    """Write mappings into site.toml, and remove those of the columns in `removed`; all other text stays.
    Return sentences about units that contradict the records, and about mappings that were replaced.

    Raises RequestError: code `bad-argument`, an unknown column or unit; or the file would be invalid, and is
    unchanged."""
    look = look_again(load(config_file)) if settings else None
    mappings = [] if look is None else [_confirmed(look, one) for one in settings]
    return set_mappings(config_file, look, mappings, removed)


def set_mappings(
    config_file: Path,
    look: FirstLook | None,
    mappings: Sequence[ProposedMapping],
    removed: Sequence[str] = (),
) -> tuple[str, ...]:
    """Write mappings of the columns that a look has found into site.toml, as `apply_changes`."""
    config, text = load(config_file), read_text(config_file)
    gone = _tables_of(config, removed)
    made = [] if look is None else _made(config, look, mappings)
    gone |= _meanings(config, [one.header for one in mappings])
    names = [name for one in made for name in usable_names(one.tables)]
    tables = {
        name: table_text(name, keys, [mapping_reason(one.mapping, one.seen, one.tables)])
        for one in made
        for name, keys in one.tables.items()
    }
    changed = with_tables(text, tables, gone - tables.keys(), [one.header for one in mappings])
    dropped = {name for rule in config.column if rule.name in gone for name in rule.columns}
    dropped -= set(names)
    changed = with_columns(changed, names, dropped)
    if dropped & set(config.offers):
        changed = with_names(changed, "offers", [one for one in config.offers if one not in dropped])
    replace_text(config_file, changed)
    return tuple(_contradictions(made)) + tuple(_replaced(config, made, gone - tables.keys()))


def _contradictions(made: Sequence[MadeMapping]) -> Iterator[str]:
    for unit, one in ((one.seen.unit, one.mapping) for one in made):
        if unit and one.unit and not same_unit(unit, one.unit):
            yield f"{one.header!r} states the unit {unit}, and is set in {one.unit}: see the share plausible"


def _replaced(config: SiteConfig, made: Sequence[MadeMapping], gone: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each column of the records, or of studies, that loses its mapping."""
    now = {one.mapping.header for one in made}
    for one in made:
        header, column = one.mapping.header, one.mapping.column
        others = {rule.header for rule in config.column if rule.name in one.tables} - now
        yield from (f"{column} was {other!r}, which is mapped to nothing now" for other in sorted(others))
        former = [rule.name for rule in config.column if rule.header == header and rule.name in gone]
        yield from (f"{header!r} was {name}, which no column of the records is now" for name in former)


def state_missing(config_file: Path, words: Sequence[str]) -> tuple[str, ...]:
    """Write words that mean "no value" in all columns into site.toml, beside those that it has. Return
    sentences about numbers among them that are plausible values of a column.

    Raises RequestError: code `bad-argument`, a word is empty; or as `apply_changes`."""
    added = tuple(word.strip() for word in words)
    if "" in added:
        raise RequestError(
            Code.BAD_ARGUMENT, "a word of --missing is empty, as is every blank cell. State one"
        )
    before = load(config_file)
    stated = merged(before.records.missing, added)
    plausible = [(word, name) for word in added for name in _plausible_in(before, word)]
    names = list(dict.fromkeys(name for _, name in plausible))
    former = missing_persons(before, names) if names else {}
    replace_text(config_file, with_missing(read_text(config_file), stated))
    if not names:
        return ()
    now = missing_persons(load(config_file), names)
    more = {name: now[name] - former[name] for name in names}
    return tuple(
        f"{word} is a plausible value of {name}: {more[name]} more persons have none now"
        for word, name in plausible
    )


def _plausible_in(config: SiteConfig, word: str) -> Iterator[str]:
    """Yield the mapped columns in whose plausible range a word is a number."""
    value = number(word.replace(",", "."))
    rules = {name: rule.linear for rule in config.column for name in rule.columns}
    for name, bounds in plausible_bounds(config).items():
        factor, offset = rules[name]
        if value is not None and bounds is not None and bounds[0] <= factor * value + offset <= bounds[1]:
            yield name


def offered_by(config: SiteConfig) -> tuple[str, ...]:
    """Return the columns that a site may state by their names in the dictionary: those of its mapping that
    studies may use. Raises RequestError: the dictionary cannot be read."""
    known, allowed = dictionary_in_force(config).usable(), config.policy.columns
    mapped = (name for rule in config.column for name in rule.columns)
    return tuple(name for name in mapped if name in known and (ANY in allowed or name in allowed))


def state_mapping(config_file: Path) -> None:
    """Write the columns of `offered_by` as `offers` into site.toml. Raises RequestError: as that, or the file
    is invalid."""
    text = read_text(config_file)
    replace_text(config_file, with_names(text, "offers", offered_by(load(config_file))))


def state_sizes(config_file: Path, sizes: SizePromises) -> None:
    """Write sizes into site.toml; all other text stays. Raises RequestError: the file would be invalid, and
    is unchanged."""
    text = read_text(config_file)
    for name, value in asdict(sizes).items():
        text = with_number(text, name, value, "engine" if name == "memory_mib" else "")
    replace_text(config_file, text)


def _tables_of(config: SiteConfig, columns: Sequence[str]) -> set[str]:
    """Return the tables of columns of studies: of a category by its own name those of all its levels."""
    found: set[str] = set()
    for name in columns:
        tables = {rule.name for rule in config.column if name in (rule.name, *rule.columns)}
        tables |= {rule.name for rule in config.column if rule.name.startswith(f"{name}{LEVEL_SEPARATOR}")}
        if not tables:
            known = [rule.name for rule in config.column]
            raise RequestError(Code.BAD_ARGUMENT, f"no column is mapped to {name!r}{suggestion(name, known)}")
        found |= tables
    return found


def _meanings(config: SiteConfig, headers: Collection[str]) -> set[str]:
    """Return the table that some columns of the records have, of a category those of all levels."""
    last = {rule.header: rule.name.partition(LEVEL_SEPARATOR)[0] for rule in config.column}
    return {
        rule.name
        for rule in config.column
        if rule.header in headers and rule.name.partition(LEVEL_SEPARATOR)[0] == last[rule.header]
    }


def _made(config: SiteConfig, look: FirstLook, mappings: Sequence[ProposedMapping]) -> list[MadeMapping]:
    """Return mappings with their tables."""
    found = list[MadeMapping]()
    columns = {one.header: one for one in look.table.columns}
    known = {one.name: one for one in look.dictionary.columns}
    rows, everywhere = look.rows if config.person_header else None, config.records.missing
    for one in mappings:
        column, stated = columns[one.header], known[one.column]
        dialect = config.records.dialect
        tables = rule_tables(one, column, stated, dialect, everywhere=everywhere, rows=rows)
        found.append(MadeMapping(mapping=one, seen=column, tables=tables))
    return found


def _confirmed(look: FirstLook, wanted: MappingSetting) -> ProposedMapping:
    seen = {one.header.strip(): one for one in look.table.columns}
    known = {one.column.name: one for one in targets(look.dictionary)}
    header, column = wanted.header, wanted.column
    if header not in seen:
        raise RequestError(
            Code.BAD_ARGUMENT, f"the records have no column {header!r}{suggestion(header, seen)}"
        )
    if column not in known:
        where = f"the dictionary {look.dictionary.name} has no column {column!r}"
        raise RequestError(Code.BAD_ARGUMENT, f"{where}{suggestion(column, known)}")
    return confirmed(seen[header], known[column], wanted.unit)
