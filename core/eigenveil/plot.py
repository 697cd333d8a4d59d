"""Plots of releases with matplotlib: `from eigenveil import plot`.

Each function takes a release (`load_release`, `run.result`), a `Simulation` or a fitted estimator. It draws
on `ax` or on new axes, without a title, and returns the axes. Plots use released numbers only [P7], so they
cost nothing. They show the uncertainty due to the privacy noise, where it is known. Results that noise alone
may explain are hatched, starred or grey.

::

    from eigenveil import load_release, plot

    plot.scree(load_release("release.zip")).figure.savefig("scree.png")"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from eigenveil.errors import Code, RequestError
from eigenveil.planning.choose import choose
from eigenveil.planning.predict import epsilons_around, sweep
from eigenveil.reporting.document import ReleaseContent
from eigenveil.reporting.figures import components as _components
from eigenveil.reporting.figures import loadings as _pairs
from eigenveil.reporting.figures.figure import STYLE, ReleaseFigureData
from eigenveil.reporting.result import Result
from eigenveil.study.study import Study

import matplotlib as mpl  # isort: skip - after the module with our message on how to install it
from matplotlib import pyplot
from matplotlib.axes import Axes

__all__ = ["biplot", "error_vs_epsilon", "heatmap", "loadings", "scree"]


def __dir__() -> list[str]:
    return __all__


def scree(of: Any, *, ax: Axes | None = None) -> Axes:
    """Plot the variance along each component, and along the other directions.

    Bars have an error of two standard deviations of the privacy noise. Variance that noise alone may explain
    is hatched, and below the red line.

    Raises:
        RequestError: code `bad-argument`: nothing was released, or `of` is no release.

    >>> from eigenveil import load_release, plot
    >>> axes = plot.scree(load_release("release.zip"))
    >>> axes.get_xlabel(), len(axes.patches)
    ('component', 3)"""
    subject = _subject(of)
    return _drawn(ax, lambda axes: _components.scree(axes, subject))


def loadings(of: Any, *, ax: Axes | None = None) -> Axes:
    """Plot the weight of each column in each component: bars for up to four components, else a heat map.

    Raises:
        RequestError: as `scree`.

    >>> from eigenveil import load_release, plot
    >>> axes = plot.loadings(load_release("release.zip"))
    >>> [tick.get_text() for tick in axes.get_yticklabels()]
    ['c0', 'c1', 'c2']"""
    subject = _subject(of)
    tall = 0.9 + 0.205 * len(_components.strongest_columns(subject))
    return _drawn(ax, lambda axes: _components.loadings(axes, subject), height=max(tall, 2.5))


def biplot(of: Any, *, ax: Axes | None = None) -> Axes:
    """Plot the columns as arrows in the plane of the first two components.

    Long arrows vary much; arrows in one direction vary together. Records are not shown: they never leave
    their sites.

    Raises:
        RequestError: as `scree`, or only one component was released.

    >>> from eigenveil import load_release, plot
    >>> axes = plot.biplot(load_release("release.zip"))
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('component 1', 'component 2')"""
    subject = _subject(of)
    arrows = _pairs.arrows_of(subject)
    return _drawn(ax, lambda axes: _pairs.biplot(axes, arrows, subject.result.columns, None))


def heatmap(of: Any, *, kind: str = "correlation", ax: Axes | None = None) -> Axes:
    """Plot the "correlation" or "covariance" of all pairs of columns, each pair once.

    Pairs that noise alone may explain are grey. Covariances are of columns as the study scales them.

    Raises:
        RequestError: as `scree`; another `kind`; or the release has no covariance whose noise is known.

    >>> from eigenveil import load_release, plot
    >>> axes = plot.heatmap(load_release("release.zip"), kind="covariance")
    >>> [tick.get_text() for tick in axes.get_yticklabels()]
    ['c0', 'c1', 'c2']"""
    subject = _subject(of)
    shown = _pairs.pair_matrix(subject, kind)
    return _drawn(ax, lambda axes: _pairs.heatmap(axes, shown, subject.result.columns), height=5.0)


def error_vs_epsilon(
    of: Any,
    *,
    epsilons: Iterable[float] | None = None,
    spectrum: Sequence[float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the error that the planner predicts at several epsilons, with a line at the study's epsilon.

    `of` may also be a `Study` that has not run. The prediction is then for its algorithm, or the choice of
    `auto`, on the assumed `spectrum`, as by `predict`. For a release, its variances are assumed. `epsilons`
    are seven values around the study's epsilon by default.

    Raises:
        RequestError: as `scree`; no error can be predicted at these epsilons.

    >>> from eigenveil import load_release, plot
    >>> axes = plot.error_vs_epsilon(load_release("release.zip"), epsilons=[1, 2, 4])
    >>> axes.get_xlabel()
    'epsilon (less is more private)'"""
    if isinstance(of, Study):
        at = epsilons_around(of.epsilon) if epsilons is None else epsilons
        found, study_epsilon = sweep(of, map(float, at), choose(of), spectrum), of.epsilon
    else:
        subject = _subject(of)
        found, study_epsilon = _components.predicted_errors(subject, epsilons), subject.study.epsilon
    return _drawn(ax, lambda axes: _components.error_curve(axes, found, study_epsilon=study_epsilon))


def _subject(of: Any) -> ReleaseFigureData:
    """Return the figure data of a release, a simulation or a fitted estimator."""
    document = getattr(of, "document", getattr(of, "release_", None))
    result = getattr(of, "result", getattr(of, "result_", None))
    if not (isinstance(document, dict) and isinstance(result, Result)):
        raise RequestError(
            Code.BAD_ARGUMENT,
            f"a {type(of).__name__} cannot be plotted: pass run.result, the result of "
            "load_release, a Simulation, or a fitted estimator",
        )
    return ReleaseFigureData.of(ReleaseContent(document=document, result=result))


def _drawn(ax: Axes | None, paint: Callable[[Axes], None], *, height: float = 4.0) -> Axes:
    with mpl.rc_context(STYLE):
        axes = ax if ax is not None else pyplot.subplots(figsize=(7.0, height), layout="constrained")[1]
        paint(axes)
    return axes
