"""Column profiles for the site's people before a study; they stay here and are never sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from eigenveil_client.records.column_quality import ColumnProfile, ColumnQuality, PlausibleRange
from eigenveil_client.records.isolated import reader
from eigenveil_client.records.line_counts import LineCounts, UnreadableCells
from eigenveil_client.records.tables.names import name_and_unit
from eigenveil_client.site.commands.line_report import UNREADABLE, cells_of, cells_text
from eigenveil_client.site.commands.terminal import show_table
from eigenveil_client.site.config import SiteConfig, plausible_ranges
from eigenveil_client.site.mapping.toml_tables import key_lines
from eigenveil_client.site.policy_sections import TOLERATED_PERSONS
from eigenveil_common.command import console, shell_command
from eigenveil_common.doctor import Check, ok, warn

BARS = "▁▂▃▄▅▆▇█"
CODE_SHARE = 0.01  # of the persons with a value: more than share an outlying value by chance
MAX_SHOWN = 1000  # columns in the table
LOCAL_ONLY_NOTE = "This table is confidential: it stays here, and no command and no daemon sends it."


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFindings:
    """Column with its plausible range, if the dictionary has one in its unit, and the findings about it, of
    which a column of text or dates that nothing names has none. `fillers`: the one or two words that are all
    of its unreadable cells; `missing`: its codes in force with these."""

    seen: ColumnProfile
    plausible: PlausibleRange | None
    odd: tuple[str, ...]
    fillers: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def check(self, config_file: Path) -> Check:
        """Return the line of `eigenveil-site check --config FILE`."""
        about = f"column {self.seen.name!r}"
        if not self.odd:
            return ok(about, "no findings")
        if self.fillers:
            line = key_lines({"missing": self.missing}).strip()
            words = (f"--missing={word}" for word in self.fillers)
            command = shell_command("eigenveil-site", "map", *words, "--config", config_file)
            todo = f"if that means no value, set {line} in {self.rule}, or run for all columns: {command}"
            return warn(about, "; ".join(self.odd), todo)
        return warn(about, "; ".join(self.odd), f"state in site.toml what its cells mean ({self.rule})")

    @property
    def rule(self) -> str:
        """Heading of the column's rule in site.toml."""
        return f"[column.{json.dumps(self.seen.name)}]"


def profile_columns(config: SiteConfig, counts: LineCounts | None = None) -> list[ColumnFindings]:
    """Return every column that studies may use, in the order of the records, then of the rules. `counts`: of
    their cells, if they are counted. Raises RequestError: the records or the dictionary cannot be read."""
    limits, known = config.engine.reading, plausible_ranges(config)
    units = config.offered.columns_with_units(reader.columns(config.records, limits), config.column)
    names = list(units)
    within = {name: known.get(name) for name in names}
    for name, near in within.items():
        if near is not None and units[name] not in (None, near.unit):
            within[name] = None  # reported as another unit
    bounds = {name: None if one is None else (one.lower, one.upper) for name, one in within.items()}
    person, found = config.policy.person_column or None, []
    for one in reader.profile(config.records, config.column, bounds, person, limits):
        unit, usual = units[one.name], known.get(one.name)
        other = () if unit is None or usual is None or unit == usual.unit else (
            f"is in {unit}, and in {usual.unit} in the dictionary: state units",
        )  # fmt: skip
        cells = cells_of(config, counts, one.name)
        odd = (*other, *_odd(config, one, within[one.name], cells))
        if counts is not None and one.name in {name_and_unit(header)[0] for header in counts.not_numbers}:
            odd = ()  # a warning that cannot be answered is read no more
        words = cells[0].fillers if len(cells) == 1 else ()
        stated = [word for rule in config.column if one.name in rule.columns for word in rule.missing]
        found.append(ColumnFindings(
            seen=one, plausible=within[one.name], odd=odd, fillers=words, missing=(*stated, *words)
        ))  # fmt: skip
    return found


def _odd(
    config: SiteConfig,
    seen: ColumnProfile,
    plausible: PlausibleRange | None,
    cells: Sequence[UnreadableCells],
) -> Iterator[str]:
    """Yield the findings about a column, the worst first."""
    if seen.quality is None:
        yield seen.problem or "cannot be read"
        return
    counted = seen.quality if plausible is None else replace(seen.quality, implausible=seen.quality.outside)
    failures = config.policy.quality.failures([counted])
    for one in failures:
        yield f"{one.share} ({one.rule} is {one.most:g}): no study about it is answered"
    if cells:
        yield from map(cells_text, cells)
    elif seen.quality.unreadable:  # of a person's rows, by their rule
        yield f"{seen.quality.unreadable} persons have {UNREADABLE}"
    if not seen.quantiles:
        yield "has no values"
        return
    if (
        plausible is not None
        and not plausible.lower <= seen.quantiles[len(seen.quantiles) // 2] <= plausible.upper
    ):
        yield (
            f"looks like another unit: half of the values lie outside {plausible.lower:g} to "
            f"{plausible.upper:g} {plausible.unit}"
        )
    yield from _codes(seen, counted, plausible)
    if seen.quantiles[0] == seen.quantiles[-1]:
        yield "is constant"


def _codes(seen: ColumnProfile, counted: ColumnQuality, plausible: PlausibleRange | None) -> Iterator[str]:
    """Yield outlying values that many persons share, such as -999 for "not measured"."""
    low, _, high = seen.quantiles[2:-2]
    reach = 4 * (high - low) or abs(high) or 1.0
    least, most = (low - reach, high + reach) if plausible is None else (plausible.lower, plausible.upper)
    many = max(TOLERATED_PERSONS, CODE_SHARE * (counted.persons - counted.missing))
    codes = [(value, times) for value, times in seen.frequent if times > many and not least <= value <= most]
    if codes and len(codes) <= 3:  # more are another unit
        named = ", ".join(f"{value:g} ({times} persons)" for value, times in codes)
        yield f"looks like a code for a missing value: {named}"


def picture(counts: Sequence[int]) -> str:
    """Return a small histogram of block characters."""
    top = max(counts, default=0) or 1
    return "".join(BARS[-(-7 * count // top)] if count else " " for count in counts)


def _profile_row(found: ColumnFindings) -> tuple[str, ...]:
    seen, counted = found.seen, found.seen.quality
    if counted is None:
        return (seen.name, *7 * ("",), seen.problem or "")
    counts = (str(counted.persons), str(counted.missing), str(counted.unreadable))
    middle = [f"{value:.4g}" for value in (seen.quantiles[1::2] if seen.quantiles else ())]
    outside = "" if found.plausible is None else str(counted.outside)
    return (seen.name, *counts, outside, *(middle or ("", "", "")), picture(seen.histogram))


def show_profiles(found: Sequence[ColumnFindings]) -> None:
    """Print the columns and the note that they stay here."""
    numbers = ("persons", "missing", "unreadable", "outside", "5 %", "median", "95 %")
    show_table(("column", *numbers, "distribution"), map(_profile_row, found[:MAX_SHOWN]))
    if len(found) > MAX_SHOWN:
        console.print(f"The first {MAX_SHOWN} of {len(found)} columns; findings about all columns follow.")
    console.print(LOCAL_ONLY_NOTE)
