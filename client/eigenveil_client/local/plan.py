"""`eigenveil plan`: what each algorithm would cost a study and how good it would be, from public numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from eigenveil.accounting.digits import shown
from eigenveil.errors import Code, RequestError
from eigenveil.planning.error_models import clear
from eigenveil.planning.error_models.spectrum import (
    AssumedSpectrum,
    default_guess,
    sample_guess,
    stated_guess,
)
from eigenveil.planning.predict import Prediction, predict_all
from eigenveil.planning.recommend import recommend
from eigenveil.planning.sweep import around, sweep
from eigenveil.study.grid import S
from eigenveil.study.study import Study, Trust
from eigenveil_client.local.format import TRUST, seconds_text, sine_text, size_text, trust_word
from eigenveil_client.local.sweep import picture, table, values
from eigenveil_client.records.apart.reader import load
from eigenveil_common.command import console

UNCLEAR = (
    "on this spectrum the last component wanted is hardly told from the next one: errors depend on luck, and "
    "these predictions can be off by a factor of several; ask for fewer or for more components"
)
MEANING = (
    "error: sine of the largest angle to the records' own components, median and where 8 in 10 runs should "
    "lie; 0 is exact, 1 is noise. rounds, and bytes from each site: the most there may be. "
    f"{TRUST} Errors and times are estimates."
)


def read_guess(study: Study, sample: Path | None, spectrum: str | None) -> AssumedSpectrum:
    """What is assumed of the records.

    Raises:
        RequestError: both a sample and a spectrum, or one that cannot be read.
    """
    d, k = study.dimension, study.components
    if sample is not None and spectrum is not None:
        raise RequestError(Code.BAD_ARGUMENT, "give --sample or --spectrum, not both")
    if sample is not None:
        return sample_guess(load(sample, study) / S, k)
    if spectrum is None:
        return default_guess(d, k)
    try:
        return stated_guess([float(part) for part in spectrum.split(",")], d, k)
    except ValueError as problem:
        raise RequestError(
            Code.BAD_ARGUMENT, f"--spectrum {spectrum!r}: write numbers, largest first, such as 5,2,1"
        ) from problem


def value(study: Study, guess: AssumedSpectrum) -> dict[str, Any]:
    predictions = predict_all(study, guess)
    advice = recommend(study, guess, predictions)
    rough = () if clear(study, guess) else (UNCLEAR,)
    return {
        "study": study.name,
        "expected_records": study.expected_records,
        "columns": study.dimension,
        "components": study.components,
        "epsilon": study.epsilon,
        "delta": study.delta,
        "neighbours": study.neighbours.value,
        "trust": study.trust.value,
        "spectrum": {"source": guess.source, "total_over_first": guess.flatness},
        "algorithms": [_algorithm(one) for one in predictions],
        "recommended": None if advice.algorithm is None else advice.algorithm.value,
        "reason": advice.reason,
        "warnings": [*advice.warnings, *rough],
    }


def _algorithm(one: Prediction) -> dict[str, Any]:
    error = one.error
    return {
        "algorithm": one.algorithm.value,
        "refused": one.refused,
        "sin_angle": None if error is None else error.median,
        "sin_angle_10": None if error is None else error.low,
        "sin_angle_90": None if error is None else error.high,
        "rounds": one.rounds,
        "bytes_per_site": one.bytes_per_site,
        "seconds": one.seconds,
        "trusted": one.trusted,
    }


def swept(
    study: Study, guess: AssumedSpectrum, epsilons: Sequence[float] | None, plot: Path | None
) -> dict[str, Any]:
    """The predictions at several epsilons, where they are asked for, and where their picture is.

    Raises:
        RequestError: nothing can be predicted at any of them. InternalError: the picture cannot be written.
    """
    if epsilons is None and plot is None:
        return {}
    asked = set(around(study.epsilon) if epsilons is None else epsilons)
    found = sweep(study, asked, spectrum=guess)
    if plot is not None:
        picture(plot, found, study.epsilon, f"{study.name}, about {study.expected_records} records")
    told: dict[str, Any] = {
        "sweep": values(found),
        "too_small": sorted(asked - {one.epsilon for one in found}),
    }
    return told if plot is None else told | {"plot": str(plot)}


def show(told: dict[str, Any]) -> None:
    console.print(
        f"{told['study']}: {told['components']} of {told['columns']} columns' components, about "
        f"{told['expected_records']} records, epsilon {shown(told['epsilon'])}, "
        f"delta {shown(told['delta'])}, {told['neighbours']}",
        markup=False,
    )
    source, flatness = told["spectrum"]["source"], told["spectrum"]["total_over_first"]
    console.print(f"assumed: {source}; total variance {flatness:.1f} times the first component's")
    console.print(_table(told))
    if "sweep" in told:
        console.print(table(told["sweep"]))
        if few := ", ".join(f"{one:.3g}" for one in told["too_small"]):
            console.print(f"no prediction at an epsilon of {few}: too small", markup=False)
    console.print(MEANING, style="dim", markup=False)
    for one in told["algorithms"]:
        if one["refused"] is not None:
            console.print(f"not {one['algorithm']}: {one['refused']}", markup=False, style="dim")
    console.print(f"\nRecommended: {told['reason']}.", markup=False)
    for sentence in told["warnings"]:
        console.print(f"warning: {sentence}", style="yellow", markup=False)
    if "plot" in told:
        console.print(told["plot"], markup=False, soft_wrap=True)


def _table(told: dict[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("", "algorithm", "error", "10 %", "90 %", "rounds", "bytes", "time", "trust"):
        table.add_column(name, justify="left" if name in ("algorithm", "trust") else "right", no_wrap=True)
    for one in told["algorithms"]:
        if one["refused"] is None and one["rounds"] is not None:
            sines = [one[key] for key in ("sin_angle", "sin_angle_10", "sin_angle_90")]
            table.add_row(
                "->" if one["algorithm"] == told["recommended"] else "",
                one["algorithm"],
                *(("?", "", "") if sines[0] is None else map(sine_text, sines)),
                str(one["rounds"]),
                size_text(one["bytes_per_site"] or 0),
                seconds_text(one["seconds"] or 0.0),
                trust_word(one["trusted"], told["trust"] == Trust.SECURE_AGGREGATION.value),
            )
    return table
