"""Plots show the released numbers and mark what noise may have made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.text import Text

from eigenveil import Algorithm, Moments, PrivatePCA, RequestError, plot, predict
from eigenveil.reporting.figures.captions import (
    scree_caption,
)
from eigenveil.reporting.figures.figure import ReleaseFigureData
from eigenveil.reporting.figures.loadings import pair_matrix
from tests.core.test_released import NAMES, released, simulation

DRAWN: dict[str, Callable[..., Axes]] = {name: getattr(plot, name) for name in plot.__all__}
pytestmark = pytest.mark.filterwarnings("ignore:Glyph .* missing from")  # where the font has no 名


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    pyplot.close("all")


def noisy(components: int = 3) -> Any:
    """Of so little epsilon that noise makes most of it."""
    return simulation(components=components, epsilon=0.15)


def meshes(axes: Axes) -> Any:
    """The coloured cells of a heat map, as an array with holes, without those that are grey."""
    d = len(NAMES)
    found = [one.get_array() for one in axes.collections if isinstance(one, QuadMesh)]
    grey, cells = (np.ma.masked_array(one).reshape((d, d)) for one in found)
    return cells, grey


@pytest.mark.parametrize("name", DRAWN)
def test_a_release_a_simulation_and_an_estimator_are_drawn_alike(name: str) -> None:
    fitted = released().to_sklearn()
    texts = []
    for one in (released(), simulation(), fitted, simulation().document):
        figure = Figure()
        axes = figure.add_subplot()
        assert DRAWN[name](one, ax=axes) is axes
        texts.append([text.get_text() for text in axes.findobj(Text)])
    assert texts[0] == texts[1] == texts[2] == texts[3]
    assert DRAWN[name](released()).get_figure() is pyplot.gcf()


@pytest.mark.parametrize("kind", ["correlation", "covariance"])
@pytest.mark.parametrize("of", [simulation(), noisy()])
def test_cells_are_the_released_numbers_each_pair_once_or_grey(kind: str, of: Any) -> None:
    shown = pair_matrix(ReleaseFigureData.of(of.document), kind)
    np.testing.assert_allclose(shown.values, shown.values.T)
    np.testing.assert_array_equal(shown.is_noise, shown.is_noise.T)
    if kind == "covariance":
        np.testing.assert_allclose(shown.values, of.result.covariance)
    else:
        found = Moments.of(of.result).correlation().numbers
        np.testing.assert_array_equal(shown.values, found.values)
        np.testing.assert_array_equal(shown.is_noise, found.is_noise)
    cells, grey = meshes(plot.heatmap(of, kind=kind))
    below = np.tri(4, k=0 if kind == "covariance" else -1, dtype=bool)
    np.testing.assert_array_equal(~np.ma.getmaskarray(cells), below & ~shown.is_noise)
    np.testing.assert_array_equal(~np.ma.getmaskarray(grey), below & shown.is_noise)
    np.testing.assert_array_equal(cells.compressed(), shown.values[below & ~shown.is_noise])


def test_the_curve_is_what_the_planner_predicts() -> None:
    study, epsilons = simulation().plan.study, [0.5, 1.0, 2.0]
    line = plot.error_vs_epsilon(study, epsilons=epsilons, spectrum=[4, 2, 1]).lines[0]
    np.testing.assert_array_equal(line.get_xdata(), epsilons)
    for epsilon, median in zip(epsilons, np.asarray(line.get_ydata()), strict=True):
        found = predict(replace(study, epsilon=epsilon), spectrum=[4, 2, 1]).error
        assert found is not None
        assert median == found.median


def test_components_within_the_noise_are_marked() -> None:
    for of, marked in ((simulation(components=2), False), (noisy(), True)):
        subject = ReleaseFigureData.of(of.document)
        assert any(subject.from_noise) is marked
        hatched = [bar.get_hatch() is not None for bar in plot.scree(of).patches]
        assert hatched == [*subject.from_noise, *[False] * (4 - subject.k)]
        assert ("* may be noise" in [text.get_text() for text in plot.loadings(of).texts]) is marked
        assert ("noise alone" in scree_caption(subject)) is marked


@pytest.mark.parametrize(
    ("draw", "why"),
    [
        (lambda: plot.scree(3), "a int cannot be plotted"),
        (lambda: plot.scree(PrivatePCA()), "a fitted estimator"),
        (lambda: plot.biplot(simulation(components=1)), "needs two components"),
        (lambda: plot.heatmap(released(), kind="cosine"), 'choose "correlation" or "covariance"'),
        (lambda: plot.heatmap(simulation(Algorithm.DP_PCA, 2)), "no covariance whose noise is known"),
        (lambda: plot.error_vs_epsilon(released(), epsilons=[1e-6]), "no error can be predicted"),
    ],
)
def test_an_impossible_plot_is_refused_with_the_reason(draw: Callable[[], Axes], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        draw()


def test_without_matplotlib_the_extra_is_named() -> None:
    code = "import sys; sys.modules['matplotlib'] = None\nfrom eigenveil import plot"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'pip install "eigenveil[analyst]"' in done.stderr
