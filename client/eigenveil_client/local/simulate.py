"""`eigenveil simulate`: a study on one file, split over simulated sites, in this process."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray, canonical
from eigenveil.numerics.linalg import sin_angle
from eigenveil.simulation import Simulation, simulate, site_places
from eigenveil.study.grid import GridRows, offsets, steps, unit
from eigenveil.study.study import Study
from eigenveil_common.concurrency import CORES
from eigenveil_common.files import write_durably

NOT_PRIVATE = (
    "NOT PRIVATE: this result contains the exact answer computed from the records. "
    "Do not publish it if the records are confidential."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRuns:
    """Several runs of one study, and the sine of each to the exact components (None if not compared)."""

    simulations: tuple[Simulation, ...]
    sin_angles: tuple[float | None, ...]

    @property
    def document(self) -> dict[str, Any]:
        """The last run's document; not private if the exact answer was computed."""
        last = self.simulations[-1].document
        if self.sin_angles[-1] is None:
            return last
        return last | {"private": False, "guarantee": {"text": NOT_PRIVATE}}


def with_sites(study: Study, number: int | None) -> Study:
    """Return the study with `number` sites; an equal number keeps their names."""
    federation = study.federation
    if number is None or number == len(federation.sites):
        return study
    names = tuple(f"site-{i + 1}" for i in range(number))
    quorum = None if federation.quorum is None else min(federation.quorum, number)
    return replace(study, federation=replace(federation, sites=names, required=(), quorum=quorum))


def divide(rows: GridRows, study: Study, split: str) -> dict[str, FloatArray]:
    """Return the records of each site in the columns' units, divided by their content."""
    names = study.federation.sites
    places = site_places(rows, dict(zip(names, _weights(split, len(names)), strict=True)), unit(study))
    step = steps(study) * unit(study)
    return {name: offsets(study) + rows[mine] * step for name, mine in places.items()}


def _weights(split: str, number: int) -> list[float]:
    if split == "even":
        return [1.0] * number
    if split == "uneven":
        return [1.0 / (i + 1) for i in range(number)]
    try:
        weights = [float(part) for part in split.split(",")]
    except ValueError:
        weights = []
    if len(weights) != number or not all(0 < weight < float("inf") for weight in weights):
        todo = f"write even, uneven, or {number} weights above 0 such as 5,3,2"
        raise RequestError(Code.BAD_ARGUMENT, f"--split {split!r}: {todo}")
    return weights


def repeat_study(
    study: Study, parts: Mapping[str, FloatArray], repeat: int, seed: int | None, truth: FloatArray | None
) -> SimulationRuns:
    """Run a study `repeat` times on the records of each site, with seeds seed, seed + 1, ... if any."""
    with ThreadPoolExecutor(CORES) as threads:
        seeds = (None if seed is None else seed + i for i in range(repeat))
        runs = tuple(simulate(study, parts, seed=one, apply=threads.map) for one in seeds)
    angles = (None if truth is None else sin_angle(truth, run.estimate.components) for run in runs)
    return SimulationRuns(simulations=runs, sin_angles=tuple(angles))


def runs_summary(runs: SimulationRuns) -> dict[str, Any]:
    """Return the runs as plain values; the document is the last run's."""
    last = runs.document
    value: dict[str, Any] = {
        "algorithm": last["plan"]["algorithm"],
        "n_sites": len(last["plan"]["study"]["federation"]["sites"]),
        "rounds": len(last["rounds"]),
        "repeat": len(runs.simulations),
        "private": last["private"],
        "guarantee": last["guarantee"],
        "result": last["result"],
    }
    angles = [angle for angle in runs.sin_angles if angle is not None]
    if angles:
        value |= {"sin_angles": angles, "sin_angle_median": statistics.median(angles)}
    return value


def write_simulation(runs: SimulationRuns, folder: Path) -> dict[str, str]:
    """Write the last run as simulation.json (unsigned) and report.html; return their paths."""
    from eigenveil.reporting.report import render  # drawing takes a second to import

    document, angle = runs.document, runs.sin_angles[-1]
    where = {"document": folder / "simulation.json", "report": folder / "report.html"}
    write_durably(where["document"], canonical(document))
    write_durably(where["report"], render(document, measured_sin_angle=angle).encode())
    return {name: str(path) for name, path in where.items()}


def runs_text(runs: SimulationRuns, value: dict[str, Any]) -> str:
    """Return the printed text of the runs."""
    result = value["result"]
    lines = [
        f"{value['algorithm']} over {value['n_sites']} sites in {value['rounds']} rounds"
        + ("" if value["repeat"] == 1 else f", {value['repeat']} times; the last run:"),
        value["guarantee"]["text"],
        "",
    ]
    shares = zip(result["explained_variance"], result["explained_variance_ratio"], strict=True)
    lines += [
        f"component {i}: variance {variance:.4g}, {100 * ratio:.1f} % of the total"
        for i, (variance, ratio) in enumerate(shares, 1)
    ]
    if result["declined"]:
        lines.append(f"no release: {result['declined']}")
    elif result["predicted_sin_angle"] is not None:
        lines.append(f"predicted sine to the records' own components: {result['predicted_sin_angle']:.3g}")
    if "sin_angles" in value:
        median, angles = value["sin_angle_median"], value["sin_angles"]
        least, most = f"{min(angles):.3g}", f"{max(angles):.3g}"
        spread = "" if len(angles) == 1 else f" (median of {len(angles)}, {least} to {most})"
        lines.append(f"measured sine to the exact components: {median:.3g}{spread}")
    lines += [f"warning: {sentence}" for sentence in result["warnings"]]
    lines += [value[name] for name in ("document", "report") if name in value]
    return "\n".join(lines)
