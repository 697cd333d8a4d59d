"""Summary of a release for notebooks: result, guarantee and one figure."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from eigenveil.reporting.presentation import summary_html, summary_text
from eigenveil.reporting.result import EVERY_COMPONENT, has_every_component
from eigenveil.reporting.trust import COORDINATOR_SEES_TOTALS, colluding
from eigenveil.study.study import Study
from eigenveil.study.toml import study_from_dict
from eigenveil.study_authorization import release_analyst

WIDTH, HEIGHT = 4.6, 2.4  # inches


def release_summary_html(document: Mapping[str, Any]) -> str:
    """Return the summary of a release or simulation document as HTML."""
    picture = _scree(document) if document["result"]["explained_variance_ratio"] else ""
    return summary_html(_title(document), _rows(document), note=_note(document), picture=picture)


def release_summary_text(document: Mapping[str, Any]) -> str:
    """Return the same summary as text."""
    return summary_text(_title(document), _rows(document), note=_note(document))


def _title(document: Mapping[str, Any]) -> str:
    return str(document["plan"]["study"]["name"])


def _note(document: Mapping[str, Any]) -> str:
    result = document["result"]
    return " ".join((document["guarantee"]["text"], *result["warnings"], *filter(None, [result["declined"]])))


def _rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    result, study = document["result"], document["plan"]["study"]
    shares = result["explained_variance_ratio"]
    explained = ", ".join(f"{100 * share:.1f} %" for share in shares)
    rows = [
        ("Asked by", release_analyst(document).text),
        ("Sites", ", ".join(study["federation"]["sites"])),
        ("Trust", _trust(study_from_dict(study))),
        ("Columns", f"{len(result['columns'])}"),
        ("Records, noised", f"{result['records']:,.0f}"),
        ("Variance explained", explained or "nothing released"),
    ]
    if result["predicted_sin_angle"] is not None and shares:
        error = f"sine {result['predicted_sin_angle']:.2g} (0 is exact, 1 is noise)"
        rows.append(("Predicted error", EVERY_COMPONENT if has_every_component(result) else error))
    return rows


def _trust(study: Study) -> str:
    if not study.masked:
        return f"central: {COORDINATOR_SEES_TOTALS}"
    return (
        f"masked: nobody saw a site's totals without noise, not even the coordinator with {colluding(study)}"
    )


def _scree(document: Mapping[str, Any]) -> str:
    """Return the scree plot as an image element; empty without matplotlib."""
    try:
        from eigenveil.reporting.figures.captions import scree_caption
        from eigenveil.reporting.figures.components import scree
        from eigenveil.reporting.figures.figure import ReleaseFigureData, image_address
    except ModuleNotFoundError as lack:
        if lack.name != "matplotlib":
            raise
        return ""

    figure_data = ReleaseFigureData.of(document)
    source = image_address(WIDTH, HEIGHT, lambda axes: scree(axes, figure_data))
    description = escape(scree_caption(figure_data))
    return f'<img src="{source}" alt="{description}" style="background:#fff;max-width:100%">'
