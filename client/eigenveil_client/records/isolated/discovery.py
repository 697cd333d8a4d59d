"""Discovery in an isolated process, and checks of what it sends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eigenveil.errors import RequestError
from eigenveil_client.records.discovery.columns import QUANTILES, SeenColumn
from eigenveil_client.records.discovery.look import MOST_COLUMNS, SeenTable
from eigenveil_client.records.discovery.tables import MOST_TABLES, PossibleTable
from eigenveil_client.records.discovery.words import Marks
from eigenveil_client.records.isolated.checked import add, count, number, strict, text, texts
from eigenveil_client.records.isolated.frames import ReaderFailure
from eigenveil_client.records.isolated.process import DEFAULT_LIMITS, ReaderLimits, run_task
from eigenveil_client.records.isolated.requests import ReaderTask
from eigenveil_client.records.tables.source import Dialect, RecordsConfig


def tables(config: RecordsConfig, limits: ReaderLimits = DEFAULT_LIMITS) -> list[PossibleTable]:
    """Return the tables of a source that has several. Raises as `Reader.stream`."""
    found: list[PossibleTable] = []
    run_task(
        config, ReaderTask.LIST_TABLES, item=lambda one: add(found, [_table(one)], MOST_TABLES),
        limits=limits, check=lambda done: None,
    )  # fmt: skip
    return found


def look_at(config: RecordsConfig, limits: ReaderLimits = DEFAULT_LIMITS) -> SeenTable:
    """Return the content of one table, and the settings that read it. Raises as `Reader.stream`."""
    columns: list[SeenColumn] = []
    return run_task(
        config, ReaderTask.SEE_TABLE, item=lambda one: add(columns, [_column(one)], MOST_COLUMNS),
        limits=limits, check=lambda done: _seen(config, tuple(columns), done),
    )  # fmt: skip


@strict
def _table(value: Any) -> PossibleTable:
    return PossibleTable(
        name=text(value["name"]), place=text(value["place"]), columns=tuple(texts(value["columns"]))
    )


@strict
def _column(value: Any) -> SeenColumn:
    counts = {name: count(value[name]) for name in COUNTED}
    quantiles = tuple(map(number, value["quantiles"]))
    if quantiles and len(quantiles) != len(QUANTILES):
        raise ReaderFailure
    form = value["date_form"]
    return SeenColumn(
        header=text(value["header"]), label=text(value["label"]), unit=text(value["unit"]), **counts,
        whole=value["whole"] is True, marks=Marks(**_texts_by_key(value["marks"])),
        date_form=None if form is None else text(form), quantiles=quantiles,
        absent_words=tuple(texts(value["absent_words"])), codes=tuple(texts(value["codes"])),
        fillers=tuple(texts(value["fillers"])), unclear=tuple(texts(value["unclear"])),
        totals=tuple(texts(value["totals"])),
        missing_cells=tuple((text(word), count(times)) for word, times in value["missing_cells"]),
        frequent=tuple((text(word), count(times)) for word, times in value["frequent"]),
    )  # fmt: skip


COUNTED = ("rows", "absent", "numbers", "dates", "words", "distinct", "censored")


def _texts_by_key(value: Any) -> dict[str, str]:
    return {text(key): text(one) for key, one in value.items()}


@strict
def _seen(config: RecordsConfig, columns: tuple[SeenColumn, ...], done: Any) -> SeenTable:
    try:
        dialect = Dialect(**_texts_by_key(done["dialect"]))
        settings = replace(
            config, dialect=dialect, header_line=count(done["header_line"]),
            units_below_header=done["units_below_header"] is True,
        )  # fmt: skip
    except RequestError:
        raise ReaderFailure from None
    return SeenTable(
        config=settings, evidence=tuple(texts(done["evidence"])), columns=columns, lost=count(done["lost"])
    )
