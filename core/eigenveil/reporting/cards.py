"""A release as notebooks show it: what was found and what is guaranteed, with one picture."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from typing import Any

from eigenveil.analyst_signature.asked_by import asked_by
from eigenveil.reporting.notebook import card, lines
from eigenveil.reporting.result import EVERY, every_direction
from eigenveil.reporting.trust import SEEN, colluding
from eigenveil.study.study import Study
from eigenveil.study.toml import study_from_dict

WIDTH, HEIGHT = 4.6, 2.4  # inches


def release_card(document: Mapping[str, Any]) -> str:
    """HTML of the content of a release.json, or of a simulation's."""
    picture = _scree(document) if document["result"]["explained_variance_ratio"] else ""
    return card(_title(document), _rows(document), note=_note(document), picture=picture)


def release_lines(document: Mapping[str, Any]) -> str:
    """The same as text."""
    return lines(_title(document), _rows(document), note=_note(document))


def _title(document: Mapping[str, Any]) -> str:
    return str(document["plan"]["study"]["name"])


def _note(document: Mapping[str, Any]) -> str:
    result = document["result"]
    return " ".join(
        (document["guarantee"]["words"], *result["warnings"], *filter(None, [result["declined"]]))
    )


def _rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    result, study = document["result"], document["plan"]["study"]
    shares = result["explained_variance_ratio"]
    explained = ", ".join(f"{100 * share:.1f} %" for share in shares)
    rows = [
        ("Asked by", asked_by(document).words),
        ("Sites", ", ".join(study["federation"]["sites"])),
        ("Trust", _trust(study_from_dict(study))),
        ("Columns", f"{len(result['columns'])}"),
        ("Records, noised", f"{result['records']:,.0f}"),
        ("Variance explained", explained or "nothing released"),
    ]
    if result["predicted_sin_angle"] is not None and shares:
        error = f"sine {result['predicted_sin_angle']:.2g} (0 is exact, 1 is noise)"
        rows.append(("Predicted error", EVERY if every_direction(result) else error))
    return rows


def _trust(study: Study) -> str:
    if not study.masked:
        return f"central: {SEEN}"
    return (
        f"masked: nobody saw a site's totals without noise, also not the coordinator with {colluding(study)}"
    )


def _scree(document: Mapping[str, Any]) -> str:
    """As an image, whose ids are its own however often it stands on a page; none without matplotlib."""
    try:
        from eigenveil.reporting.figures.scree import scree
    except ModuleNotFoundError as lack:
        if lack.name != "matplotlib":
            raise
        return ""
    from eigenveil.reporting.figures.style import svg
    from eigenveil.reporting.figures.subject import Subject
    from eigenveil.reporting.figures.words import scree_words

    subject = Subject.of(document)
    drawn = svg(WIDTH, HEIGHT, lambda axes: scree(axes, subject))
    source = f"data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}"
    words = escape(scree_words(subject))
    return f'<img src="{source}" alt="{words}" style="background:#fff;max-width:100%">'
