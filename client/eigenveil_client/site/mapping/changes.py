"""Changes of a site's mapping, written into its site.toml."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from eigenveil.dictionary.dictionary import LEVEL_SEPARATOR, suggestion
from eigenveil.dictionary.site_rules import ANY
from eigenveil.errors import Code, RequestError
from eigenveil_client.site.config import SiteConfig, dictionary_in_force, load, replace_text
from eigenveil_client.site.mapping.first_look import FirstLook
from eigenveil_client.site.mapping.matching import ProposedMapping, confirmed
from eigenveil_client.site.mapping.promises import SizePromises
from eigenveil_client.site.mapping.rules import Keys, rule_tables, usable_names
from eigenveil_client.site.mapping.table import look_again
from eigenveil_client.site.mapping.targets import targets
from eigenveil_client.site.mapping.toml_tables import (
    table_text,
    with_columns,
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


def parse_setting(text: str) -> MappingSetting:
    """Return the parts of THEIRS=column[:unit], or of THEIRS=column:word=level,... Raises RequestError: code
    `bad-argument`."""
    found = SETTING.fullmatch(text)
    if found is None:
        forms = "THEIRS=column, THEIRS=column:unit or THEIRS=column:word=level,word=level"
        raise RequestError(Code.BAD_ARGUMENT, f"{text!r} is none of {forms}")
    header, column, unit = (part.strip() for part in found.groups(default=""))
    return MappingSetting(header=header, column=column, unit=unit)


def apply_changes(config_file: Path, settings: Sequence[MappingSetting], removed: Sequence[str]) -> None:
    """Write mappings into site.toml, and remove those of the columns in `removed`; all other text stays.

    Raises RequestError: code `bad-argument`, an unknown column or unit; or the file would be invalid, and is
    unchanged."""
    config, text = load(config_file), read_text(config_file)
    gone = _tables_of(config, removed)
    made = _made(config, settings) if settings else []
    mappings = [mapping for mapping, _ in made]
    stated = {rule.header: rule.name for rule in config.column}
    gone |= {stated[one.header] for one in mappings if one.header in stated}  # a column has one meaning
    names = [name for _, some in made for name in usable_names(some)]
    tables = {
        name: table_text(name, keys, [f"{one.header}: {one.reason}."])
        for one, some in made
        for name, keys in some.items()
    }
    changed = with_tables(text, tables, gone - tables.keys(), [one.header for one in mappings])
    dropped = {name for rule in config.column if rule.name in gone for name in rule.columns}
    dropped -= set(names)
    changed = with_columns(changed, names, dropped)
    if dropped & set(config.offers):
        changed = with_names(changed, "offers", [one for one in config.offers if one not in dropped])
    replace_text(config_file, changed)


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


def _made(
    config: SiteConfig, settings: Sequence[MappingSetting]
) -> list[tuple[ProposedMapping, dict[str, Keys]]]:
    """Return the mappings that were wished, and their tables."""
    look, found = look_again(config), list[tuple[ProposedMapping, dict[str, Keys]]]()
    columns = {one.header: one for one in look.table.columns}
    known = {one.name: one for one in look.dictionary.columns}
    rows, everywhere = look.rows if config.person_header else None, config.records.missing
    for wanted in settings:
        one = _confirmed(look, wanted)
        column, stated = columns[one.header], known[one.column]
        dialect = config.records.dialect
        tables = rule_tables(one, column, stated, dialect, everywhere=everywhere, rows=rows)
        found.append((one, tables))
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
