"""Derived results of a release on disk, shown as tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table

from eigenveil.derived.components import Angles, Components
from eigenveil.derived.correlations import Correlations, Distances
from eigenveil.derived.covariance import IntervalEstimate
from eigenveil.derived.factors import Factors, Rotation
from eigenveil.derived.moments import Moments
from eigenveil.derived.regression import Regression
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.reporting.verify import load_release, load_unsigned
from eigenveil_client.analyst.release_files import check_signer
from eigenveil_common.command import console, errors
from eigenveil_common.files import read

FARTHEST = 20  # rows that a terminal shows
GREY = "dim"  # values within the noise


def read_moments(
    release: Path, key: str | None, profile: Path | None, two_valued: Sequence[str] = ()
) -> Moments:
    """Return the moments of a release on disk, after a check of its signature if a key is available."""
    data = read(release)
    content, why = load_unsigned(data), "has no signature"
    if content is not None and key is not None:
        raise RequestError(Code.BAD_RELEASE, f"{release} has no signature. Leave out --key")
    if content is None:
        content = signed = load_release(data)
        why = "" if check_signer(signed, key, profile) else "is signed by an unknown key"
    if why:
        errors.print(f"warning: {release} {why}", style="yellow", markup=False, soft_wrap=True)
    return Moments.of(content, two_valued=two_valued)


def read_rows(path: Path, names: Sequence[str]) -> FloatArray:
    """Return these columns of a CSV file with a header. Shape: (n, m)."""
    table = csv.DictReader(io.StringIO(read(path).decode("utf-8-sig")))
    missing = [name for name in names if name not in (table.fieldnames or ())]
    if missing:
        raise RequestError(Code.BAD_ARGUMENT, f"{path} has no column {', '.join(missing)}. Add it")
    rows = []
    for line, row in enumerate(table, 2):
        try:
            rows.append([float(row[name]) for name in names])
        except (TypeError, ValueError) as problem:
            why = f"{path}, line {line}: {', '.join(names)} must be numbers"
            raise RequestError(Code.BAD_ARGUMENT, why) from problem
    return np.array(rows).reshape(len(rows), len(names))


def show(answer: Any) -> None:
    """Print an answer and its notes on the terminal."""
    table = _table(answer)
    title, table.title = table.title, None  # a title would be wrapped to the width of its table
    console.print(title, soft_wrap=True)
    console.print(table)
    console.print(answer.intervals.sentence)
    for note in answer.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)


@singledispatch
def _table(answer: Any) -> Table:
    raise TypeError(f"no table shows {type(answer).__name__}")


def _new_table(title: str, *heads: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for i, head in enumerate(heads):
        table.add_column(head, justify="left" if i == 0 else "right")
    return table


def _interval(numbers: IntervalEstimate, at: Any) -> str:
    return f"{numbers.low[at]:.4g} to {numbers.high[at]:.4g}"


def _cells(numbers: IntervalEstimate, at: Iterable[Any]) -> list[str]:
    """Return values with half intervals, grey where noise alone could be as large."""
    cells = [
        (f"{numbers.values[i]:+.2f} ± {numbers.half_width[i]:.2f}", bool(numbers.is_noise[i])) for i in at
    ]
    return [f"[{GREY}]{text}[/]" if noise else text for text, noise in cells]


@_table.register
def _(answer: Correlations) -> Table:
    kind = "Partial correlations" if answer.partial else "Correlations"
    table = _new_table(f"{kind}, {answer.numbers.level:.0%} intervals; grey: within the noise", "")
    for name in answer.columns[:-1]:
        table.add_column(escape(name), justify="right")
    for i, name in enumerate(answer.columns[1:], 1):
        table.add_row(escape(name), *_cells(answer.numbers, ((i, j) for j in range(i))))
    return table


@_table.register
def _(answer: Regression) -> Table:
    level = f"{answer.both.level:.0%}"
    table = _new_table(
        f"{escape(answer.target)} from {len(answer.on)} columns, {answer.records:,.0f} records: R² "
        f"{float(answer.r_squared.values):.3f} ({_interval(answer.r_squared, ())})",
        "column", "coefficient", "privacy error", "sampling error", f"{level} interval of both",
    )  # fmt: skip
    for i, name in enumerate(answer.on):
        table.add_row(
            escape(name),
            f"{answer.both.values[i]:.4g}",
            f"{answer.privacy.errors[i]:.2g}",
            f"{answer.sampling.errors[i]:.2g}",
            _interval(answer.both, i),
            style=GREY if answer.both.is_noise[i] else None,
        )
    table.add_row("(intercept)", f"{answer.intercept.values:.4g}", f"{answer.intercept.errors:.2g}")
    return table


@_table.register
def _(answer: Components) -> Table:
    table = _new_table(f"Components, predicted sine {answer.sine:.2g}", "", *_numbered(len(answer.ratio)))
    ends = range(len(answer.ratio))
    table.add_row("variance", *(f"{answer.variances.values[i]:.4g}" for i in ends))
    table.add_row("interval", *(_interval(answer.variances, i) for i in ends))
    table.add_row("share", *(f"{100 * share:.1f} %" for share in answer.ratio), end_section=True)
    for j, name in enumerate(answer.columns):
        table.add_row(escape(name), *_cells(answer.loadings, ((i, j) for i in ends)))
    return table


@_table.register
def _(answer: Factors) -> Table:
    k = len(answer.between)
    table = _new_table(f"Factors, {answer.rotation.value}", "", *_numbered(k), "unique")
    for i, name in enumerate(answer.columns):
        cells = _cells(answer.loadings, ((i, j) for j in range(k)))
        table.add_row(escape(name), *cells, f"{answer.unique.values[i]:.2f}")
    if answer.rotation is Rotation.PROMAX:
        for j in range(k):
            table.add_row(f"with factor {j + 1}", *(f"{one:+.2f}" for one in answer.between[j]))
    return table


@_table.register
def _(answer: Angles) -> Table:
    table = _new_table(f"Angles; noise alone: up to about {answer.noise_degrees:.2g} degrees", "", "degrees")
    for i, degrees in enumerate(answer.degrees, 1):
        table.add_row(str(i), f"{degrees:.3g}")
    return table


@_table.register
def _(answer: Distances) -> Table:
    numbers = answer.numbers
    order = np.argsort(-numbers.values, kind="stable")[:FARTHEST]
    table = _new_table(
        f"Distances, the {len(order)} farthest of {len(numbers.values)} rows", "row", "distance", "interval"
    )
    for i in order.tolist():
        table.add_row(str(i + 1), f"{numbers.values[i]:.3g}", _interval(numbers, i))
    return table


def _numbered(k: int) -> list[str]:
    return [str(i + 1) for i in range(k)]
