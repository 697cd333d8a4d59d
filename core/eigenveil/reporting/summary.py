"""Card of a result for Python and notebooks: its components in sentences, loadings, guarantee, warnings and
one figure; and the result as a DataFrame."""

from __future__ import annotations

from html import escape
from typing import Any

from eigenveil.protocol.plan import planned_study
from eigenveil.reporting.document import HasRelease
from eigenveil.reporting.loadings import NAMED, ComponentLoadings, component_loadings, release_warnings
from eigenveil.reporting.presentation import dataframe, summary_html, summary_text, table_html, table_text
from eigenveil.reporting.result import EVERY_COMPONENT
from eigenveil.reporting.trust import COORDINATOR_SEES_TOTALS, colluding
from eigenveil.study.study import Study
from eigenveil.study_authorization import release_analyst

WIDTH, HEIGHT = 4.6, 2.4  # inches
MOST_COMPONENTS = 6  # in a card
FEW_COLUMNS = 12  # up to this number all are in its table


def release_summary_html(release: HasRelease) -> str:
    """Return the card of a release or a simulation as HTML, without a reference to anything outside."""
    shown = component_loadings(release.result)[:MOST_COMPONENTS]
    table = table_html(_loadings_title(release), *_loadings(shown)) if shown else ""
    picture = _scree(release) if shown else ""
    warnings = "".join(f"<p><b>Warning:</b> {escape(one)}</p>" for one in release_warnings(release))
    below = table + picture + warnings
    return summary_html(_title(release), _rows(release, shown), note=_note(release), picture=below)


def release_summary_text(release: HasRelease) -> str:
    """Return the same card as text."""
    shown = component_loadings(release.result)[:MOST_COMPONENTS]
    table = [table_text(_loadings_title(release), *_loadings(shown))] if shown else []
    warnings = [f"warning: {one}" for one in release_warnings(release)]
    note = "\n".join([*table, _note(release), *warnings])
    return summary_text(_title(release), _rows(release, shown), note=note)


def release_dataframe(release: HasRelease) -> Any:
    """Return a DataFrame with a row for each column: its unit, mean and scale, and its loading in each
    component with the error, None if no error is stated. Raises RequestError: pandas is not installed."""
    result, study = release.result, planned_study(release.document["plan"])
    values: dict[str, list[Any]] = {
        "unit": [one.unit for one in study.columns],
        "mean": result.mean.tolist(),
        "scale": result.scale.tolist(),
    }
    for one in component_loadings(result):
        values[f"component {one.number}"] = [loading.value for loading in one.loadings]
        values[f"error {one.number}"] = [loading.error for loading in one.loadings]
    return dataframe(values, index=result.columns)


def _loadings_title(release: HasRelease) -> str:
    columns = len(release.result.columns)
    few = f", the {NAMED} strongest of each component" if columns > FEW_COLUMNS else ""
    return f"Loadings{few}"


def _loadings(shown: tuple[ComponentLoadings, ...]) -> tuple[list[str], list[list[str]]]:
    """Return the headings and rows of a table of the columns, or of those that the components name, in the
    study's order."""
    rows = list(zip(*(one.loadings for one in shown), strict=True))
    if len(rows) > FEW_COLUMNS:
        names = {loading.column for one in shown for loading in one.named}
        rows = [row for row in rows if row[0].column in names]
    headings = ["column", *(f"component {one.number}" for one in shown)]
    return headings, [[row[0].column, *map(str, row)] for row in rows]


def _title(release: HasRelease) -> str:
    return str(release.document["plan"]["study"]["name"])


def _note(release: HasRelease) -> str:
    text = str(release.document["guarantee"]["text"])
    return " ".join(filter(None, [text, release.result.declined]))


def _rows(release: HasRelease, shown: tuple[ComponentLoadings, ...]) -> list[tuple[str, str]]:
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
    if result.prior is not None:
        rows.append(("Prior", result.prior.text))
    return rows + [(f"Component {one.number}", one.sentence) for one in shown]


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
