"""A result for the eye, on a terminal: components, their share of the variance, how far off they may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from eigenveil.reporting.result import EVERY, every_direction

STRONGEST = 4


def components_table(result: Mapping[str, Any]) -> Table:
    """The components of a release with their strongest columns; `result` as a document holds it."""
    table = Table(title="Principal components", title_justify="left")
    for heading in ("component", "variance", "share"):
        table.add_column(heading, justify="right")
    table.add_column("strongest columns (loading)")
    rows = zip(
        result["components"], result["explained_variance"], result["explained_variance_ratio"], strict=True
    )
    for i, (row, variance, ratio) in enumerate(rows, 1):
        strongest = sorted(zip(result["columns"], row, strict=True), key=lambda pair: -abs(pair[1]))
        words = ", ".join(f"{name} ({loading:+.2f})" for name, loading in strongest[:STRONGEST])
        table.add_row(str(i), f"{variance:.4g}", f"{100 * ratio:.1f} %", escape(words))
    return table


def error_words(result: Mapping[str, Any]) -> str:
    """How far off a release is predicted to be; empty if it says nothing of that."""
    sine = result["predicted_sin_angle"]
    if sine is None:
        return ""
    if every_direction(result):
        return f"predicted error: {EVERY}; the variances show which of them stand out"
    return f"predicted sine of the largest angle to the exact components (0 exact, 1 noise): {sine:.3f}"
