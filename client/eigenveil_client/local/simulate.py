"""`eigenveil simulate`: a study on one file, split over imagined sites, in this process."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eigenveil.contributing import Hold
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray, canonical
from eigenveil.numerics.linalg import sin_angle
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import NAMES
from eigenveil.secure_aggregation.simulated import CoalitionView
from eigenveil.simulation import Simulation, site_places
from eigenveil.simulation import simulate as run_study
from eigenveil.study.grid import GridRows, offsets, steps, unit
from eigenveil.study.study import MAX_ATTEMPTS, Study, Trust
from eigenveil_common.files import write_durably
from eigenveil_common.threads import CORES

LOST = re.compile(rf"(?P<round>[1-9]\d{{0,5}})(\.(?P<attempt>[1-{MAX_ATTEMPTS}]))?:(?P<site>.+)")
LOOKED = (
    "NOT PRIVATE: the exact answer was computed from the records and stands beside this result. "
    "Do not publish it if the records are confidential."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Several runs of one study, and how far each was from the truth (None if that was not asked)."""

    simulations: tuple[Simulation, ...]
    sin_angles: tuple[float | None, ...]

    @property
    def document(self) -> dict[str, Any]:
        """The last run's document; not private any more once the exact answer stands beside it."""
        last = self.simulations[-1].document
        if self.sin_angles[-1] is None:
            return last
        return last | {"private": False, "guarantee": {"words": LOOKED}}


def with_sites(study: Study, number: int | None, **privacy: Any) -> Study:
    """The study with `number` sites and what else of it is changed for a try; its own names are kept when
    their number fits."""
    federation = study.federation
    if number is not None and number != len(federation.sites):
        names = tuple(f"site-{i + 1}" for i in range(number))
        quorum = None if federation.quorum is None else min(federation.quorum, number)
        federation = replace(federation, sites=names, required=(), quorum=quorum)
    return replace(study, federation=federation, **privacy)


def trusting(trust: str | None, colluding: int | None, attempts: int | None) -> dict[str, Any]:
    """What of a study's [privacy] the command line states instead; a central one has no other keys."""
    if trust == Trust.CENTRAL.value:
        return {"trust": Trust.CENTRAL, "colluding": colluding, "attempts": attempts or 1}
    stated = {"trust": trust and Trust(trust), "colluding": colluding, "attempts": attempts}
    return {key: value for key, value in stated.items() if value is not None}


def divide(rows: GridRows, study: Study, split: str) -> dict[str, FloatArray]:
    """The records dealt to the sites by what they are, in the columns' units.

    Raises:
        RequestError: the split cannot be read.
    """
    names = study.federation.sites
    weights = _weights(split, len(names))
    places = site_places(rows, dict(zip(names, weights, strict=True)), unit(study))
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
        raise RequestError(
            Code.BAD_ARGUMENT,
            f"--split {split!r}: write even, uneven, or {number} weights above 0 such as 5,3,2",
        )
    return weights


def parse_drop_outs(given: Sequence[str], study: Study) -> dict[int, list[str]]:
    """Which sites miss which round (from 0), from ROUND:SITE, where people count from 1.

    Raises:
        RequestError: not of that form, or an unknown site.
    """
    out: dict[int, list[str]] = {}
    for item in given:
        round_text, _, site = item.partition(":")
        if not round_text.isdigit() or int(round_text) < 1 or site not in study.federation.sites:
            known = ", ".join(study.federation.sites)
            raise RequestError(
                Code.BAD_ARGUMENT,
                f"--drop-out {item!r}: write ROUND:SITE, with a round from 1 and a site of: {known}",
            )
        out.setdefault(int(round_text) - 1, []).append(site)
    return out


def parse_lost(given: Sequence[str], study: Study) -> dict[int, list[list[str]]]:
    """Which sites are lost in which attempt at which round (from 0), from ROUND:SITE for its first attempt or
    ROUND.ATTEMPT:SITE, where people count from 1.

    Raises:
        RequestError: not of that form, or an unknown site.
    """
    out: dict[int, list[list[str]]] = {}
    for item in given:
        matched = LOST.fullmatch(item)
        if matched is None or matched["site"] not in study.federation.sites:
            known = ", ".join(study.federation.sites)
            raise RequestError(
                Code.BAD_ARGUMENT,
                f"--lost {item!r}: write ROUND:SITE or ROUND.ATTEMPT:SITE, with a round from 1, an attempt "
                f"from 1 to {MAX_ATTEMPTS} and a site of: {known}",
            )
        attempts = out.setdefault(int(matched["round"]) - 1, [[] for _ in range(MAX_ATTEMPTS)])
        attempts[int(matched["attempt"] or 1) - 1].append(matched["site"])
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Troubles:
    """What goes wrong in a simulated study: see `eigenveil.simulate`."""

    drop_outs: dict[int, list[str]]
    lost: dict[int, list[list[str]]]
    colluding: tuple[str, ...]


def repeat_study(
    study: Study,
    parts: dict[str, FloatArray],
    repeat: int,
    seed: int | None,
    troubles: Troubles,
    truth: FloatArray | None,
    hold: Hold | None = None,
) -> Runs:
    """Run the study `repeat` times, with seeds seed, seed + 1, ... if any; `hold` as of `simulate`."""
    simulations, angles = [], []
    with ThreadPoolExecutor(CORES) as threads:
        for i in range(repeat):
            one = None if seed is None else seed + i
            run = run_study(
                study,
                parts,
                seed=one,
                drop_outs=troubles.drop_outs,
                lost=troubles.lost,
                colluding=troubles.colluding,
                apply=threads.map,
                hold=hold,
            )
            simulations.append(run)
            angles.append(None if truth is None else sin_angle(truth, run.estimate.components))
    return Runs(simulations=tuple(simulations), sin_angles=tuple(angles))


def summary(runs: Runs) -> dict[str, Any]:
    """The runs as plain values; the document is the last run's."""
    last, run = runs.document, runs.simulations[-1]
    value: dict[str, Any] = {
        "algorithm": last["plan"]["algorithm"],
        "n_sites": len(last["plan"]["study"]["federation"]["sites"]),
        "rounds": len(last["rounds"]),
        "repeat": len(runs.simulations),
        "private": last["private"],
        "guarantee": last["guarantee"],
        "result": last["result"],
    }
    if run.plan.masked:
        value |= {"attempts": run.attempts, "seen": [_seen(one, run.asked) for one in run.seen]}
    angles = [angle for angle in runs.sin_angles if angle is not None]
    if angles:
        value |= {"sin_angles": angles, "sin_angle_median": statistics.median(angles)}
    return value


def _seen(one: CoalitionView, asked: Sequence[RoundQuery]) -> dict[str, Any]:
    return {
        "round": one.round,
        "attempt": one.attempt,
        "kind": NAMES[type(asked[one.round].query)],
        "honest": one.honest,
        "values": one.values.tolist(),
    }


def write_simulation(runs: Runs, folder: Path) -> dict[str, str]:
    """The last run as simulation.json (unsigned) and report.html."""
    from eigenveil.reporting.report import render  # drawing takes a second to import

    document, angle = runs.document, runs.sin_angles[-1]
    where = {"document": folder / "simulation.json", "report": folder / "report.html"}
    write_durably(where["document"], canonical(document))
    write_durably(where["report"], render(document, measured_sin_angle=angle).encode())
    return {name: str(path) for name, path in where.items()}


def draw_last(runs: Runs, path: Path) -> dict[str, str]:
    """The last run as one figure of all its pictures; nothing where it released nothing to draw.

    Raises:
        InternalError: code `storage`, it cannot be written.
    """
    from eigenveil_client.local.overview import overview  # drawing takes a second to import

    if not len(runs.simulations[-1].result.components):
        return {}
    overview(path, runs.document)
    return {"plot": str(path)}


def text(runs: Runs, value: dict[str, Any]) -> str:
    """The runs for a person."""
    result = value["result"]
    lines = [
        f"{value['algorithm']} over {value['n_sites']} sites in {value['rounds']} rounds"
        + ("" if value["repeat"] == 1 else f", {value['repeat']} times; the last run:"),
        value["guarantee"]["words"],
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
    if extra := sum(value.get("attempts", ())) - len(value.get("attempts", ())):
        lines.append(f"attempts lost to sites that were gone: {extra}, each charged")
    if value.get("seen"):
        lines.append(
            f"the colluding sites and the coordinator could compute {len(value['seen'])} sums of the others' "
            "answers with the noise of their shares inside, or noise where one was lost: --json lists them"
        )
    lines += [f"warning: {sentence}" for sentence in result["warnings"]]
    lines += [value[name] for name in ("document", "report", "plot") if name in value]
    return "\n".join(lines)
