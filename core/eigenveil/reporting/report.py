"""Report of a release as one self-contained HTML page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from eigenveil.accounting.formatting import percent_up, shown_up
from eigenveil.derived.moments import Moments
from eigenveil.planning.choose import USABLE
from eigenveil.protocol.plan import attempt_limits, planned_study
from eigenveil.queries import KINDS
from eigenveil.reporting.document import HasRelease, charged_micro_rho
from eigenveil.reporting.explain import document_guarantee
from eigenveil.reporting.figures.captions import report_figures
from eigenveil.reporting.figures.figure import MOST_COLUMNS
from eigenveil.reporting.figures.loadings import Projection
from eigenveil.reporting.loadings import component_loadings, release_warnings
from eigenveil.reporting.result import EVERY_COMPONENT, Result
from eigenveil.reporting.trust import colluding, visibility_table
from eigenveil.study.scaling import SCALING_TEXTS, Scaling
from eigenveil.study.toml import single_tables
from eigenveil.study_authorization import release_analyst

__all__ = ["Projection", "render"]

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SMALL_SINE = 0.15  # up to this sine the directions can be read as they are


def render(
    release: HasRelease,
    *,
    public_key: str | None = None,
    projection: Projection | None = None,
    measured_sin_angle: float | None = None,
) -> str:
    """Return the report of a release as one HTML page without external references. `public_key`
    (hex) is the key that signed it. `projection` and `measured_sin_angle` are for demonstrations on public
    records: they are functions of the records and no guarantee covers them."""
    document, result = release.document, release.result
    study = planned_study(document["plan"])
    return _template().render(
        document=document,
        result=result,
        study=document["plan"]["study"],
        applicant=study.applicant.text,
        guarantee=document_guarantee(document),
        public_key=public_key,
        release_analyst=release_analyst(document),
        figures=report_figures(release, projection) if len(result.components) else {},
        correlation_intervals=_correlation_intervals(release),
        projection_note=projection.note if projection is not None else "",
        components=_components(result),
        warnings=release_warnings(release),
        loadings=_loadings(document, result),
        error=_error(result.predicted_sin_angle, result.has_every_component),
        measured_sin_angle=measured_sin_angle,
        scaling=SCALING_TEXTS[Scaling(study.scaling)].note,
        kinds=_kinds(document),
        sites=_sites(document),
        stated=_stated_rules(document),
        spent_share=_share(charged_micro_rho(document["rounds"]), document),
        sights=visibility_table(study),
        masked=study.masked,
        prior=study.prior,
        colluding=colluding(study),
        few_columns=MOST_COLUMNS,
    )


def _correlation_intervals(release: HasRelease) -> str:
    """Return the trust in the intervals of the correlations, with the notes; empty without correlations."""
    if release.result.covariance is None or release.result.noise is None:
        return ""
    found = Moments.of(release).correlation()
    return " ".join((found.intervals.sentence, *(f"Note: {note}." for note in found.notes)))


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("eigenveil"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    environment.filters["bound"] = bound
    environment.filters["taken"] = lambda share: f"{percent_up(share, 1, 1)} %"
    environment.filters["percent"] = lambda value: f"{float(100 * value):.1f} %"
    return environment.get_template("report.html.j2")


def number(value: float) -> str:
    """Format a number with four significant digits, spaces between thousands and a true minus sign."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1000:
        text = f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    elif value == 0 or size >= 1e-4:
        text = f"{value:.4g}"
    else:
        mantissa, exponent = f"{value:.2e}".split("e")
        text = f"{float(mantissa):g} × 10{str(int(exponent)).translate(SUPERSCRIPTS)}"
    return text.replace("-", "\N{MINUS SIGN}")


def bound(value: float) -> str:
    """Format a number of the guarantee like `number`, rounded up."""
    plain, _, exponent = shown_up(value, 4 if value >= 1e-4 else 3).partition("e")
    if exponent:
        return f"{plain} × 10{str(int(exponent)).translate(SUPERSCRIPTS)}"
    if not math.isfinite(value):
        return plain
    integer_part, point, rest = plain.partition(".")
    return f"{int(integer_part):,}".replace(",", "\N{NARROW NO-BREAK SPACE}") + point + rest


def _components(result: Result) -> list[dict[str, Any]]:
    cumulative = np.cumsum(result.explained_variance_ratio)
    return [
        {
            "variance": one.variance,
            "ratio": one.share,
            "together": together,
            "sentence": one.sentence,
            "strongest": one.strongest_text,
        }
        for one, together in zip(component_loadings(result), cumulative.tolist(), strict=True)
    ]


def _loadings(document: Mapping[str, Any], result: Result) -> list[dict[str, Any]]:
    columns = single_tables(document["plan"]["study"]["columns"])
    components = component_loadings(result)
    return [
        {**column, "mean": mean, "loadings": [one.loadings[i] for one in components]}
        for i, (column, mean) in enumerate(zip(columns, result.mean.tolist(), strict=True))
    ]


def _error(sine: float | None, every: bool) -> dict[str, Any] | None:
    if sine is None:
        return None
    degrees = math.degrees(math.asin(min(1.0, max(0.0, sine))))
    if every:
        grade = "fair"
        reading = f"The study requested {EVERY_COMPONENT}. The variances show which stand out of the noise."
    elif sine <= SMALL_SINE:
        grade, reading = "good", "Noise changes the released directions little: read them as they are."
    elif sine <= USABLE:
        grade = "fair"
        reading = "Noise changes the released directions noticeably: trust the strong loadings only."
    else:
        grade, reading = "poor", "Noise dominates the released directions: their loadings mean little."
    return {"sine": sine, "degrees": degrees, "grade": grade, "text": reading}


def _kinds(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the queries by kind, in the order of their first round."""
    rounds = document["rounds"]
    total = sum(entry["micro_rho"] for entry in rounds) or 1
    return [
        {
            "kind": kind,
            "meaning": KINDS[kind].meaning if kind in KINDS else "",
            "rounds": len(mine := [entry for entry in rounds if entry["kind"] == kind]),
            "share": Fraction(sum(entry["micro_rho"] for entry in mine), total),
        }
        for kind in dict.fromkeys(entry["kind"] for entry in rounds)
    ]


def _sites(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each invited site's number of rounds, largest share of the cost and reasons for absence."""
    rounds = document["rounds"]
    return [
        {
            "name": name,
            "present": sum(name in entry["present"] for entry in rounds),
            "share": _share(charged_micro_rho(rounds, name), document),
            "reasons": ", ".join(
                dict.fromkeys(one["absent"][name] for one in rounds if name in one["absent"])
            ),
        }
        for name in document["plan"]["study"]["federation"]["sites"]
    ]


def _share(micro_rho: int, document: Mapping[str, Any]) -> Fraction:
    """Return micro-rho as a share of the most that the study may spend, with repeated attempts."""
    _, pool = attempt_limits(document["plan"])
    most = int(document["plan"]["micro_rho"]) + pool
    return Fraction(micro_rho, max(most, 1))


def _stated_rules(document: Mapping[str, Any]) -> str:
    """Return the sites' stated data quality rules, grouped by equal rules; empty if no site stated any."""
    if not any(document["sites"].values()):
        return ""
    sites_by_rules: dict[str, list[str]] = {}
    for name, stated in document["sites"].items():
        sites_by_rules.setdefault("nothing" if stated is None else _rules(stated), []).append(name)
    return "; ".join(f"{', '.join(names)}: {reading}" for reading, names in sites_by_rules.items())


def _rules(stated: Mapping[str, Any]) -> str:
    shares = [
        f"{name.removeprefix('max_')} {100 * share:g} %" for name, share in stated["thresholds"].items()
    ]
    decider = "a person there decides" if stated["approval"] == "manual" else "its settings decide"
    return f"at most {', '.join(shares)} of a column ({decider})".replace("_", " ")
