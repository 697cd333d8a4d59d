"""Plots show the released numbers and mark what noise may have made."""

from __future__ import annotations

import re
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
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation, Text

from eigenveil import Algorithm, Moments, PrivatePCA, RequestError, plot, predict
from eigenveil.reporting.document import read_content
from eigenveil.reporting.figures.captions import (
    biplot_caption,
    error_caption,
    heatmap_caption,
    loadings_caption,
    scree_caption,
)
from eigenveil.reporting.figures.components import predicted_errors
from eigenveil.reporting.figures.figure import ReleaseFigureData
from eigenveil.reporting.figures.loadings import arrows_of, pair_matrix
from eigenveil.reporting.release_file import read_archive
from eigenveil.study.scaling import SCALING_TEXTS
from tests.core.test_released import NAMES, released, sealed, simulation
from tests.support import Patch

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
    content, texts = read_content(read_archive(sealed())), []
    for one in (released(), simulation(), fitted, content):
        figure = Figure()
        axes = figure.add_subplot()
        assert DRAWN[name](one, ax=axes) is axes
        texts.append([text.get_text() for text in axes.findobj(Text)])
    assert texts[0] == texts[1] == texts[2] == texts[3]
    assert DRAWN[name](released()).get_figure() is pyplot.gcf()


def test_bars_whiskers_and_arrows_are_the_released_numbers_and_their_noise() -> None:
    one, axes = released(), plot.scree(released())
    heights = [bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)]
    np.testing.assert_array_equal(heights[:3], one.explained_variance)
    assert one.result.covariance is not None
    np.testing.assert_allclose(heights[3:], np.linalg.eigvalsh(one.result.covariance)[::-1][3:])
    (bars,) = [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
    lengths = [segment[1, 1] - segment[0, 1] for segment in bars.lines[2][0].get_segments()]
    np.testing.assert_allclose(lengths, 4 * one.result.noise_scale)
    widths = [bar.get_width() for bar in plot.loadings(one).patches if isinstance(bar, Rectangle)]
    np.testing.assert_allclose(np.reshape(widths, (3, 4)), one.components)
    texts, due = plot.biplot(one).texts, arrows_of(ReleaseFigureData.of(simulation()))
    tips = np.array([text.xy for text in texts if isinstance(text, Annotation) and not text.get_text()])
    np.testing.assert_allclose(tips / np.linalg.norm(tips), due / np.linalg.norm(due), atol=1e-12)


def numbers(words: str) -> list[float]:
    found = re.findall(r"[-+]?\d+\.\d+(?:e[-+]\d+)?(?: %)?", words.replace("\N{MINUS SIGN}", "-"))
    return [float(one.removesuffix(" %")) / (100 if one.endswith("%") else 1) for one in found]


def test_captions_state_the_numbers_of_their_figures() -> None:
    data, columns = ReleaseFigureData.of(simulation()), list(NAMES)
    shares = data.result.explained_variance_ratio
    np.testing.assert_allclose(numbers(scree_caption(data)), [*shares, shares.sum()], atol=6e-4)
    top = [sorted(row, key=abs, reverse=True)[:3] for row in data.result.components]
    np.testing.assert_allclose(numbers(loadings_caption(data)), np.ravel(top), atol=6e-3)
    both = pair_matrix(data, "correlation")
    words = heatmap_caption(both, columns)
    i, j = np.unravel_index(np.abs(np.tril(both.values * ~both.is_noise, -1)).argmax(), (4, 4))
    assert f"{columns[j]} with {columns[i]}" in words
    assert numbers(words)[0] == pytest.approx(both.values[i, j], rel=0.05)
    assert f"noise alone could explain {int(np.tril(both.is_noise, -1).sum())}." in words
    arrows = arrows_of(data)
    largest = columns[int(np.linalg.norm(arrows, axis=1).argmax())]
    assert f"the longest: {largest} " in biplot_caption(arrows, columns)
    found = predicted_errors(data)
    assert numbers(error_caption(found))[0] == pytest.approx(found[0].error.median, rel=0.05)


@pytest.mark.parametrize("kind", ["correlation", "covariance"])
@pytest.mark.parametrize("of", [simulation(), noisy()])
def test_cells_are_the_released_numbers_each_pair_once_or_grey(kind: str, of: Any) -> None:
    shown = pair_matrix(ReleaseFigureData.of(of), kind)
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
        subject = ReleaseFigureData.of(of)
        assert any(subject.result.from_noise) is marked
        hatched = [bar.get_hatch() is not None for bar in plot.scree(of).patches]
        assert hatched == [*subject.result.from_noise, *[False] * (4 - subject.k)]
        assert ("* may be noise" in [text.get_text() for text in plot.loadings(of).texts]) is marked
        assert ("noise alone" in scree_caption(subject)) is marked


@pytest.mark.parametrize(
    ("draw", "why"),
    [
        (lambda: plot.scree(3), "a int cannot be plotted"),
        (lambda: plot.scree(simulation().document), "a dict cannot be plotted"),
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


@pytest.mark.parametrize("scaling", [one.axis for one in SCALING_TEXTS.values() if one.axis])
def test_no_label_is_cut_off(scaling: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(ReleaseFigureData, "units", scaling)
    for axes in (plot.scree(released()), plot.loadings(released())):
        figure = axes.get_figure(root=True)
        assert figure is not None
        figure.draw_without_rendering()
        (left, below), (right, above) = figure.bbox.get_points()
        for label in (one for one in (axes.xaxis.label, axes.yaxis.label) if one.get_text()):
            box = label.get_window_extent()
            assert left <= box.x0 <= box.x1 <= right
            assert below <= box.y0 <= box.y1 <= above


def test_without_matplotlib_the_extra_is_named() -> None:
    code = "import sys; sys.modules['matplotlib'] = None\nfrom eigenveil import plot"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{sys.executable} -m pip install 'eigenveil[analyst]'" in done.stderr
