"""Predictions of one study at several epsilons, as a table and as a picture. `eigenveil plan`: predicted cost
and error of each algorithm for a study, from public numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from eigenveil.accounting.formatting import shown, shown_up
from eigenveil.errors import Code, RequestError
from eigenveil.planning.error_models import clear
from eigenveil.planning.error_models.assumed_records import (
    AssumedSpectrum,
    default_spectrum,
    sample_spectrum,
    stated_spectrum,
)
from eigenveil.planning.error_models.perturbation import PredictedError
from eigenveil.planning.predict import EpsilonPrediction, Prediction, epsilons_around, predict_all, sweep
from eigenveil.planning.recommend import recommend
from eigenveil.study.grid import S
from eigenveil.study.scaling import NO_SPREADS, Spreads
from eigenveil.study.study import Study, Trust
from eigenveil_client.local.options import write_figure
from eigenveil_client.local.tables import TRUST, plain_table, seconds_text, sine_text, size_text, trust_label
from eigenveil_client.records.isolated.reader import load
from eigenveil_common.command import console

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SINES = ("sin_angle", "sin_angle_10", "sin_angle_90")


def _sines(error: PredictedError | None) -> dict[str, float | None]:
    numbers = (None,) * 3 if error is None else (error.median, error.low, error.high)
    return dict(zip(SINES, numbers, strict=True))


def sweep_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return the predictions as a printed table."""
    out = plain_table(("epsilon", "algorithm", "error", "10 %", "90 %", "rounds"))
    for row in rows:
        sines = (sine_text(row[key]) for key in SINES)
        out.add_row(shown_up(row["epsilon"]), row["algorithm"], *sines, str(row["rounds"]))
    return out


def draw_sweep(path: Path, found: Sequence[EpsilonPrediction], study_epsilon: float, title: str) -> None:
    """Draw the predicted error against epsilon."""
    from eigenveil.reporting.figures.components import error_curve

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        error_curve(axes, found, study_epsilon=study_epsilon)
        axes.set_title(title, fontsize=11)

    write_figure(path, (7.0, 4.0), paint)


UNCLEAR = (
    "on this spectrum the last component is hardly distinct from the next one, so these predictions can be "
    "wrong by a factor of several; use fewer or more components"
)
MEANING = (
    "error: sine of the largest angle to the records' own components, median and where 8 in 10 runs should "
    "lie; 0 is exact, 1 is noise. rounds, and bytes from each site: the most there may be. "
    f"{TRUST} Errors and times are estimates."
)


def read_assumed_spectrum(study: Study, sample: Path | None, spectrum: str | None) -> AssumedSpectrum:
    """Return the assumed spectrum of the records."""
    d, k = study.dimension, study.components
    if sample is not None and spectrum is not None:
        raise RequestError(Code.BAD_ARGUMENT, "give --sample or --spectrum, not both")
    if sample is not None:
        return sample_spectrum(load(sample, study) / S, k)
    if spectrum is None:
        return default_spectrum(d, k)
    try:
        return stated_spectrum([float(part) for part in spectrum.split(",")], d, k)
    except ValueError as problem:
        todo = "write numbers, largest first, such as 5,2,1"
        raise RequestError(Code.BAD_ARGUMENT, f"--spectrum {spectrum!r}: {todo}") from problem


def plan_values(
    study: Study, assumed_spectrum: AssumedSpectrum, spreads: Spreads = NO_SPREADS
) -> dict[str, Any]:
    predictions = predict_all(study, assumed_spectrum)
    advice = recommend(study, assumed_spectrum, predictions, spreads)
    accuracy_warnings = () if clear(study, assumed_spectrum) else (UNCLEAR,)
    return {
        "study": study.name,
        "expected_records": study.expected_records,
        "columns": study.dimension,
        "components": study.components,
        "epsilon": study.epsilon,
        "delta": study.delta,
        "neighbours": study.neighbours.value,
        "trust": study.trust.value,
        "spectrum": {"source": assumed_spectrum.source, "total_over_first": assumed_spectrum.flatness},
        "algorithms": [_algorithm(one) for one in predictions],
        "recommended": None if advice.algorithm is None else advice.algorithm.value,
        "reason": advice.reason,
        "warnings": [*advice.warnings, *accuracy_warnings],
    }


def _algorithm(one: Prediction) -> dict[str, Any]:
    return {
        "algorithm": one.algorithm.value,
        "refused": one.refused,
        **_sines(one.error),
        "rounds": one.rounds,
        "bytes_per_site": one.bytes_per_site,
        "seconds": one.seconds,
        "trusted": one.trusted,
    }


def predict_sweep(
    study: Study, assumed_spectrum: AssumedSpectrum, epsilons: Sequence[float] | None, plot: Path | None
) -> dict[str, Any]:
    """Return the predictions at several epsilons and the path of their picture, if requested."""
    if epsilons is None and plot is None:
        return {}
    requested = set(epsilons_around(study.epsilon) if epsilons is None else epsilons)
    found = sweep(study, requested, spectrum=assumed_spectrum)
    if plot is not None:
        draw_sweep(plot, found, study.epsilon, f"{study.name}, about {study.expected_records} records")
    rows = [
        {"epsilon": one.epsilon, "algorithm": one.algorithm.value, **_sines(one.error), "rounds": one.rounds}
        for one in found
    ]
    too_small = sorted(requested - {one.epsilon for one in found})
    result: dict[str, Any] = {"sweep": rows, "too_small": too_small}
    return result if plot is None else result | {"plot": str(plot)}


def print_plan(result: dict[str, Any]) -> None:
    console.print(
        f"{result['study']}: {result['components']} of {result['columns']} columns' components, about "
        f"{result['expected_records']} records, epsilon {shown(result['epsilon'])}, "
        f"delta {shown(result['delta'])}, {result['neighbours']}",
        markup=False,
    )
    source, flatness = result["spectrum"]["source"], result["spectrum"]["total_over_first"]
    console.print(f"assumed: {source}; total variance {flatness:.1f} times the first component's")
    console.print(_table(result))
    if "sweep" in result:
        console.print(sweep_table(result["sweep"]))
        if missing := ", ".join(f"{one:.3g}" for one in result["too_small"]):
            console.print(f"no prediction at epsilon {missing}: too small", markup=False)
    console.print(MEANING, style="dim", markup=False)
    for one in result["algorithms"]:
        if one["refused"] is not None:
            console.print(f"not {one['algorithm']}: {one['refused']}", markup=False, style="dim")
    console.print(f"\nRecommended: {result['reason']}.", markup=False)
    for sentence in result["warnings"]:
        console.print(f"warning: {sentence}", style="yellow", markup=False)
    if "plot" in result:
        console.print(result["plot"], markup=False, soft_wrap=True)


def _table(result: dict[str, Any]) -> Table:
    table = plain_table(("", "algorithm", "error", "10 %", "90 %", "rounds", "bytes", "time", "trust"))
    for one in result["algorithms"]:
        if one["refused"] is None and one["rounds"] is not None:
            sines = [one[key] for key in SINES]
            table.add_row(
                "->" if one["algorithm"] == result["recommended"] else "",
                one["algorithm"],
                *(("?", "", "") if sines[0] is None else map(sine_text, sines)),
                str(one["rounds"]),
                size_text(one["bytes_per_site"] or 0),
                seconds_text(one["seconds"] or 0.0),
                trust_label(one["trusted"], result["trust"] == Trust.SECURE_AGGREGATION.value),
            )
    return table
