"""Summary of a release for notebooks: result, guarantee and one figure."""

from __future__ import annotations

from html import escape

from eigenveil.protocol.plan import planned_study
from eigenveil.reporting.document import HasRelease
from eigenveil.reporting.presentation import summary_html, summary_text
from eigenveil.reporting.result import EVERY_COMPONENT
from eigenveil.reporting.trust import COORDINATOR_SEES_TOTALS, colluding
from eigenveil.study.study import Study
from eigenveil.study_authorization import release_analyst

WIDTH, HEIGHT = 4.6, 2.4  # inches


def release_summary_html(release: HasRelease) -> str:
    """Return the summary of a release or a simulation as HTML."""
    picture = _scree(release) if len(release.result.components) else ""
    return summary_html(_title(release), _rows(release), note=_note(release), picture=picture)


def release_summary_text(release: HasRelease) -> str:
    """Return the same summary as text."""
    return summary_text(_title(release), _rows(release), note=_note(release))


def _title(release: HasRelease) -> str:
    return str(release.document["plan"]["study"]["name"])


def _note(release: HasRelease) -> str:
    result, text = release.result, release.document["guarantee"]["text"]
    return " ".join((text, *result.warnings, *filter(None, [result.declined])))


def _rows(release: HasRelease) -> list[tuple[str, str]]:
    result, study = release.result, planned_study(release.document["plan"])
    explained = ", ".join(f"{100 * share:.1f} %" for share in result.explained_variance_ratio.tolist())
    rows = [
        ("Asked by", release_analyst(release.document).text),
        ("Sites", ", ".join(study.federation.sites)),
        ("Trust", _trust(study)),
        ("Columns", f"{len(result.columns)}"),
        ("Records, noised", f"{result.records:,.0f}"),
        ("Variance explained", explained or "nothing released"),
    ]
    if result.predicted_sin_angle is not None and len(result.components):
        error = f"sine {result.predicted_sin_angle:.2g} (0 is exact, 1 is noise)"
        rows.append(("Predicted error", EVERY_COMPONENT if result.has_every_component else error))
    return rows


def _trust(study: Study) -> str:
    if not study.masked:
        return f"central: {COORDINATOR_SEES_TOTALS}"
    return (
        f"masked: nobody saw a site's totals without noise, not even the coordinator with {colluding(study)}"
    )


def _scree(release: HasRelease) -> str:
    """Return the scree plot as an image element; empty without matplotlib."""
    try:
        from eigenveil.reporting.figures.captions import scree_caption
        from eigenveil.reporting.figures.components import scree
        from eigenveil.reporting.figures.figure import ReleaseFigureData, image_address
    except ModuleNotFoundError as lack:
        if lack.name != "matplotlib":
            raise
        return ""

    figure_data = ReleaseFigureData.of(release)
    source = image_address(WIDTH, HEIGHT, lambda axes: scree(axes, figure_data))
    description = escape(scree_caption(figure_data))
    return f'<img src="{source}" alt="{description}" style="background:#fff;max-width:100%">'
