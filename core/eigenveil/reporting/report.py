"""A release as one page for people: values in, self-contained HTML out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from eigenveil.accounting.digits import percent_up, shown_up
from eigenveil.analyst_signature.asked_by import asked_by
from eigenveil.numerics.encoding import FloatArray
from eigenveil.planning.choose import USABLE
from eigenveil.queries import KINDS
from eigenveil.reporting.attempts import spent
from eigenveil.reporting.explain import promised
from eigenveil.reporting.figures.biplot import Projection
from eigenveil.reporting.figures.style import MOST_COLUMNS
from eigenveil.reporting.pictures import pictures
from eigenveil.reporting.result import EVERY, every_direction
from eigenveil.reporting.trust import colluding, sights
from eigenveil.study.columns import single_tables
from eigenveil.study.study import Scaling
from eigenveil.study.toml import study_from_dict

__all__ = ["Projection", "render"]

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SCALED = {
    Scaling.NONE: "Variances are in the squared unit of the columns.",
    Scaling.BOUNDS: "Every column was scaled to [−1, 1] by its public bounds; variances are on that scale.",
    Scaling.STANDARD: "Every column was divided by its noised standard deviation; variances are on that "
    "scale, on which a column has a variance of about 1.",
}
CLOSE = 0.15  # a sine that changes how nothing is read


def render(
    document: Mapping[str, Any],
    *,
    public_key: str | None = None,
    projection: Projection | None = None,
    measured_sin_angle: float | None = None,
) -> str:
    """The report of a release document (`bundle.build`) as one HTML page without outside references.

    `public_key` (hex) is the key that signed it. `projection` and `measured_sin_angle` are for
    demonstrations on public records: they are functions of the records and carry no guarantee.
    """
    result, study = document["result"], study_from_dict(document["plan"]["study"])
    components = np.array(result["components"]).reshape(-1, len(result["columns"]))
    return _template().render(
        document=document,
        result=result,
        study=document["plan"]["study"],
        guarantee=promised(document),
        public_key=public_key,
        asked_by=asked_by(document),
        figures=pictures(document, projection) if components.size else {},
        projection_note=projection.note if projection is not None else "",
        components=_components(result, components),
        loadings=_loadings(document, components),
        error=_error(result["predicted_sin_angle"], every_direction(result)),
        measured_sin_angle=measured_sin_angle,
        scaling=SCALED[Scaling(document["plan"]["study"]["records"]["scaling"])],
        kinds=_kinds(document),
        sites=_sites(document),
        stated=_stated(document),
        spent_share=_share(spent(document["rounds"]), document),
        sights=sights(study),
        masked=study.masked,
        colluding=colluding(study),
        few_columns=MOST_COLUMNS,
    )


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
    """A number with four significant digits, thousands apart, and a true minus sign."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1000:
        text = f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    elif value == 0 or size >= 1e-4:
        text = f"{value:.4g}"
    else:
        mantissa, exponent = f"{value:.2e}".split("e")
        text = f"{float(mantissa):g} × 10{str(int(exponent)).translate(RAISED)}"
    return text.replace("-", "\N{MINUS SIGN}")


def bound(value: float) -> str:
    """A number of the guarantee, never less than it is, as `number` is set."""
    plain, _, exponent = shown_up(value, 4 if value >= 1e-4 else 3).partition("e")
    if exponent:
        return f"{plain} × 10{str(int(exponent)).translate(RAISED)}"
    if not math.isfinite(value):
        return plain
    whole, point, rest = plain.partition(".")
    return f"{int(whole):,}".replace(",", "\N{NARROW NO-BREAK SPACE}") + point + rest


def _components(result: Mapping[str, Any], components: FloatArray) -> list[dict[str, Any]]:
    together = np.cumsum(result["explained_variance_ratio"])
    names = result["columns"]
    return [
        {
            "variance": variance,
            "ratio": ratio,
            "together": float(together[i]),
            "strongest": [
                (names[j], float(components[i, j])) for j in np.argsort(-np.abs(components[i]))[:3]
            ],
        }
        for i, (variance, ratio) in enumerate(
            zip(result["explained_variance"], result["explained_variance_ratio"], strict=True)
        )
    ]


def _loadings(document: Mapping[str, Any], components: FloatArray) -> list[dict[str, Any]]:
    columns = single_tables(document["plan"]["study"]["columns"])
    means = document["result"]["mean"]
    return [
        {**column, "mean": mean, "loadings": components[:, j].tolist()}
        for j, (column, mean) in enumerate(zip(columns, means, strict=True))
    ]


def _error(sine: float | None, every: bool) -> dict[str, Any] | None:
    if sine is None:
        return None
    degrees = math.degrees(math.asin(min(1.0, max(0.0, sine))))
    if every:
        grade, words = (
            "fair",
            f"This study asked {EVERY}. Read which of them stand out of the noise off their variances.",
        )
    elif sine <= CLOSE:
        grade, words = "good", "Noise turns the released directions by a little: read them as they are."
    elif sine <= USABLE:
        grade, words = (
            "fair",
            "Noise turns the released directions noticeably: trust the strong loadings only.",
        )
    else:
        grade, words = "poor", "Noise turns the released directions so far that their loadings mean little."
    return {"sine": sine, "degrees": degrees, "grade": grade, "words": words}


def _kinds(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The questions asked, by kind, in the order in which they first appear."""
    rounds = document["rounds"]
    total = sum(entry["micro_rho"] for entry in rounds) or 1
    kinds = dict.fromkeys(entry["kind"] for entry in rounds)
    return [
        {
            "kind": kind,
            "meaning": KINDS[kind].meaning if kind in KINDS else "",
            "rounds": len(mine := [entry for entry in rounds if entry["kind"] == kind]),
            "share": Fraction(sum(entry["micro_rho"] for entry in mine), total),
        }
        for kind in kinds
    ]


def _sites(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every invited site: in how many rounds its records are, what the study cost it at most, why it was
    away."""
    rounds = document["rounds"]
    names = document["plan"]["study"]["federation"]["sites"]
    return [
        {
            "name": name,
            "present": sum(name in entry["present"] for entry in rounds),
            "share": _share(spent(rounds, name), document),
            "reasons": ", ".join(
                dict.fromkeys(one["absent"][name] for one in rounds if name in one["absent"])
            ),
        }
        for name in names
    ]


def _share(micro_rho: int, document: Mapping[str, Any]) -> Fraction:
    """Of the most that the study may spend, with every attempt."""
    plan = document["plan"]
    most = int(plan["micro_rho"]) * int(plan["study"]["privacy"].get("attempts", 1))
    return Fraction(micro_rho, max(most, 1))


def _stated(document: Mapping[str, Any]) -> str:
    """What the sites had stated of the shares beyond which they do not answer, the same words only once;
    empty if none had stated anything."""
    if not any(document["sites"].values()):
        return ""
    told: dict[str, list[str]] = {}
    for name, stated in document["sites"].items():
        told.setdefault("nothing" if stated is None else _rules(stated), []).append(name)
    return "; ".join(f"{', '.join(names)}: {words}" for words, names in told.items())


def _rules(stated: Mapping[str, Any]) -> str:
    shares = [f"{name.removeprefix('max_')} {100 * share:g} %" for name, share in stated["rules"].items()]
    asked = "a person there decides" if stated["approval"] == "ask" else "its settings decide"
    return f"at most {', '.join(shares)} of a column ({asked})".replace("_", " ")
