"""The outcome "no release" is a result like any other: written, rendered, paid for."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from eigenveil.numerics.encoding import canonical
from eigenveil.numerics.linalg import sin_angle
from eigenveil.protocol.estimate import no_release
from eigenveil.reporting.document import release_document
from eigenveil.reporting.report import render
from eigenveil.reporting.result import result_of
from tests.support import a_plan

WHY = "no direction stood out"


def declined() -> dict[str, Any]:
    """The document of a study that released nothing."""
    result = result_of(a_plan(), no_release(a_plan(), 100.0, WHY))
    return release_document(a_plan(), result, [], rounds=[], private=True)


def test_it_has_no_components_and_says_why() -> None:
    document = declined()
    result = json.loads(canonical(document))["result"]
    assert result["declined"] == WHY
    assert result["components"] == result["explained_variance"] == []


def test_its_report_has_no_pictures_and_says_why() -> None:
    page = render(declined())
    assert WHY in page
    assert "<img" not in page
    assert "No release" in page


def test_it_is_as_wrong_as_can_be() -> None:
    assert sin_angle(np.eye(2, 3), np.zeros((0, 3))) == 1.0
