"""Lines and cells of the records that are lost, for the site's own people: the terminal and the console show
them with examples, and no log and no message has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from eigenveil.errors import Code, EigenveilError
from eigenveil.study.study import Column
from eigenveil_client.records.isolated import reader
from eigenveil_client.records.line_counts import LineCounts, UnreadableCells
from eigenveil_client.records.tables.lost import LostLines, LostReason
from eigenveil_client.records.tables.names import name_and_unit
from eigenveil_client.site.config import EngineKind, SiteConfig
from eigenveil_common.doctor import Check, fail, ok, warn

UNREADABLE = "cells that cannot be read and count as missing"
ON_A_CLUSTER = "not counted: the files of a cluster are Parquet, whose rows have every cell"
REASON_TEXTS = {
    LostReason.FEW_CELLS: "with too few cells",
    LostReason.MANY_CELLS: "with too many cells",
    LostReason.BYTES: "with bytes that are not in the file's encoding",
    LostReason.PERSON: "without a person",
    LostReason.OTHER_ROW: "of a person whose other row, with other values, is the record",
}
REMEDIES = {
    LostReason.FEW_CELLS: "correct these lines, or the separator",
    LostReason.MANY_CELLS: "correct these lines, or the separator",
    LostReason.BYTES: "save the file as UTF-8, or state its encoding",
    LostReason.PERSON: "name the person in each row",
    LostReason.OTHER_ROW: (
        "the rows of a SELECT have no order: state `rows` for each column that has other values in them, or "
        "select one row of each person"
    ),
}


def counted_lines(config: SiteConfig, columns: Iterable[str] = ()) -> LineCounts | None:
    """Return the counts of the records' lines; None on a cluster, which loses none. `columns`: of a study, so
    that they must hold numbers. Raises RequestError: the records cannot be read."""
    if config.engine.kind is EngineKind.DASK:
        return None
    offered = replace(config.offered, named=config.offered.named | frozenset(columns))
    person = config.policy.person_column or None
    return reader.line_counts(config.records, config.column, offered, person, config.engine.reading)


def line_checks(config: SiteConfig, counts: LineCounts | None) -> list[Check]:
    """Return the check of the lost lines, and of the columns that hold no numbers and are not asked about."""
    if counts is None:
        return [ok("lines", ON_A_CLUSTER)]
    text, todo = lines_text(counts), "; ".join(dict.fromkeys(REMEDIES[one.reason] for one in counts.lost))
    if config.policy.lines.declines(counts):
        declined = f"{text}. No study is answered: {config.policy.lines.limit}"
        found = [fail("lines", declined, todo, code=Code.BAD_DATA)]
    else:
        found = [warn("lines", text, todo) if counts.lost else ok("lines", text)]
    if counts.not_numbers:
        names = ", ".join(counts.not_numbers)
        found.append(ok("columns", f"text or dates, which no rule, offer or dictionary names: {names}"))
    return found


def counted_checks(
    config: SiteConfig, columns: Sequence[Column] = ()
) -> tuple[LineCounts | None, list[Check]]:
    """Return the counts, if they could be made, and the checks of them. `columns`: of a study."""
    names = [one.name for one in columns]
    try:
        counts = counted_lines(config, names)
    except EigenveilError as problem:
        return None, [fail("lines", str(problem), code=problem.code)]
    return counts, [*line_checks(config, counts), *_study_checks(config, counts, names)]


def lines_text(counts: LineCounts) -> str:
    """Return the lines as one text: all, lost by reason with the first places, skipped and repeated."""
    parts = [f"{counts.lines} lines, {counts.used} used"]
    parts += [lost_text(one) for one in counts.lost]
    if counts.skipped:
        parts.append(f"{counts.skipped} before the header skipped")
    if counts.repeated:
        parts.append(f"{counts.repeated} repeat an earlier line")
    return "; ".join(parts)


def lost_text(lost: LostLines) -> str:
    more = ", ..." if lost.lines > len(lost.first) else ""
    return f"{lost.lines} lost, {REASON_TEXTS[lost.reason]} ({', '.join(lost.first)}{more})"


def cells_text(cells: UnreadableCells) -> str:
    """Return the unreadable cells of a column as one text, with the examples."""
    shown = ", ".join(f"{one.text!r} ({one.place})" for one in cells.examples)
    return f"{UNREADABLE}: {cells.cells}, such as {shown}: {cells.what}"


def cells_of(config: SiteConfig, counts: LineCounts | None, name: str) -> Sequence[UnreadableCells]:
    """Return the unreadable cells of a column that studies may name, in the columns that its rule reads."""
    rules = [rule for rule in config.column if name in rule.columns]
    read = {one for rule in rules for one in (rule.header, rule.by, rule.years_since)} or {name}
    return [
        one
        for one in (counts.cells if counts else ())
        if {one.column.strip(), name_and_unit(one.column)[0]} & read
    ]


def _study_checks(config: SiteConfig, counts: LineCounts | None, names: Iterable[str]) -> list[Check]:
    """Return a warning for each column of the records that a study reads and that has unreadable cells."""
    found = {one.column: one for name in names for one in cells_of(config, counts, name)}
    return [warn(f"column {name!r}", cells_text(one), "") for name, one in sorted(found.items())]


def lines_view(config: SiteConfig, columns: Sequence[Column]) -> dict[str, Any]:
    """Return the counts, and if they decline every study, as plain values for `explain`. `columns`: of the
    study."""
    counts, checks = counted_checks(config, columns)
    view: dict[str, Any] = {"checks": [one.as_dict() for one in checks]}
    if counts is not None:
        lost = [asdict(one) | {"reason": one.reason.value} for one in counts.lost]
        view |= {"lines": counts.lines, "used": counts.used, "lost": lost}
    return view
