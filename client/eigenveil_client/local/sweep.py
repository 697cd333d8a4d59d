"""One study planned at several epsilons: a table, a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from eigenveil.accounting.digits import shown_up
from eigenveil.planning.sweep import Foreseen
from eigenveil_client.local.format import sine_text
from eigenveil_client.local.pictures import draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def values(found: Sequence[Foreseen]) -> list[dict[str, Any]]:
    """The predictions as plain values, named as those of the algorithms are."""
    return [
        {
            "epsilon": one.epsilon,
            "algorithm": one.algorithm.value,
            "sin_angle": one.error.median,
            "sin_angle_10": one.error.low,
            "sin_angle_90": one.error.high,
            "rounds": one.rounds,
        }
        for one in found
    ]


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """For a person."""
    out = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("epsilon", "algorithm", "error", "10 %", "90 %", "rounds"):
        out.add_column(name, justify="left" if name == "algorithm" else "right", no_wrap=True)
    for row in rows:
        sines = (sine_text(row[key]) for key in ("sin_angle", "sin_angle_10", "sin_angle_90"))
        out.add_row(shown_up(row["epsilon"]), row["algorithm"], *sines, str(row["rounds"]))
    return out


def picture(path: Path, found: Sequence[Foreseen], own: float, title: str) -> None:
    """The predicted error against epsilon.

    Raises:
        InternalError: code `storage`, it cannot be written.
    """
    from eigenveil.reporting.figures.error_curve import error_curve

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        error_curve(axes, found, own=own)
        axes.set_title(title, fontsize=11)

    draw(path, (7.0, 4.0), paint)
