"""Pictures of what was released, on matplotlib's axes: `from eigenveil import plot`.

Each takes a release (`load_release`, `run.result`), a `Simulation` or a fitted estimator, draws on `ax` or on
new axes, and returns the axes. All is read off released numbers [P7]: it costs nothing, and shows what the
privacy noise leaves unknown, where that is known. What noise alone may have made is hatched, starred or grey.
Titles are the caller's.

::

    from eigenveil import load_release, plot

    plot.scree(load_release("release.json")).figure.savefig("scree.png")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from eigenveil.errors import Code, RequestError
from eigenveil.planning.choose import choose
from eigenveil.planning.sweep import around, sweep
from eigenveil.reporting.figures import biplot as _biplot
from eigenveil.reporting.figures import error_curve as _error_curve
from eigenveil.reporting.figures import heatmap as _heatmap
from eigenveil.reporting.figures import loadings as _loadings
from eigenveil.reporting.figures import scree as _scree
from eigenveil.reporting.figures.style import STYLE
from eigenveil.reporting.figures.subject import Subject
from eigenveil.study.study import Study

import matplotlib as mpl  # isort: skip - after our own word on where to get it
from matplotlib import pyplot
from matplotlib.axes import Axes

__all__ = ["biplot", "error_vs_epsilon", "heatmap", "loadings", "scree"]


def scree(of: Any, *, ax: Axes | None = None) -> Axes:
    """The variance along each component, with two standard deviations of the privacy noise either way, and
    along the other directions. Hatched, and below the red line, what noise alone may have made.

    Raises:
        RequestError: code `bad-argument`: nothing was released, or `of` is no release.

    >>> from eigenveil import load_release, plot
    >>> axes = plot.scree(load_release("release.json"))
    >>> axes.get_xlabel(), len(axes.patches)
    ('component', 3)
    """
    subject = _subject(of)
    return _drawn(ax, lambda axes: _scree.scree(axes, subject))


def loadings(of: Any, *, ax: Axes | None = None) -> Axes:
    """How much each column weighs in each component: bars for up to four components, a heat map for more.

    Raises:
        RequestError: as `scree`.

    >>> from eigenveil import load_release, plot
    >>> axes = plot.loadings(load_release("release.json"))
    >>> [tick.get_text() for tick in axes.get_yticklabels()]
    ['c0', 'c1', 'c2']
    """
    subject = _subject(of)
    tall = 0.9 + 0.205 * len(_loadings.shown_columns(subject))
    return _drawn(ax, lambda axes: _loadings.loadings(axes, subject), height=max(tall, 2.5))


def biplot(of: Any, *, ax: Axes | None = None) -> Axes:
    """The columns as arrows in the plane of the first two components: long ones vary much, and those side by
    side vary together. There is no cloud of records, which never left their sites.

    Raises:
        RequestError: as `scree`, or only one component was released.

    >>> from eigenveil import load_release, plot
    >>> axes = plot.biplot(load_release("release.json"))
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('component 1', 'component 2')
    """
    subject = _subject(of)
    arrows = _biplot.arrows_of(subject)
    return _drawn(ax, lambda axes: _biplot.biplot(axes, arrows, subject.columns, None))


def heatmap(of: Any, *, kind: str = "correlation", ax: Axes | None = None) -> Axes:
    """The "correlation" or "covariance" of all pairs of columns, each pair once, grey where noise alone could
    show as much. Covariances are about columns as the study scales them.

    Raises:
        RequestError: as `scree`; another `kind`; or the release has no covariance whose noise is known.

    >>> from eigenveil import load_release, plot
    >>> axes = plot.heatmap(load_release("release.json"), kind="covariance")
    >>> [tick.get_text() for tick in axes.get_yticklabels()]
    ['c0', 'c1', 'c2']
    """
    subject = _subject(of)
    shown = _heatmap.pairs(subject, kind)
    return _drawn(ax, lambda axes: _heatmap.heatmap(axes, shown, subject.columns), height=5.0)


def error_vs_epsilon(
    of: Any,
    *,
    epsilons: Iterable[float] | None = None,
    spectrum: Sequence[float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The error that the planner predicts at several epsilons, with a line at the study's own.

    `of` may also be a `Study` that nobody ran: its algorithm, or what `auto` means for it, is then predicted
    on the `spectrum` assumed, as `predict` does. For a release the variances released are assumed.
    `epsilons` are seven about the study's own unless they are given.

    Raises:
        RequestError: as `scree`; no error can be predicted at these epsilons.

    >>> from eigenveil import load_release, plot
    >>> axes = plot.error_vs_epsilon(load_release("release.json"), epsilons=[1, 2, 4])
    >>> axes.get_xlabel()
    'epsilon (less is more private)'
    """
    if isinstance(of, Study):
        at = around(of.epsilon) if epsilons is None else epsilons
        found, own = sweep(of, map(float, at), choose(of), spectrum), of.epsilon
    else:
        subject = _subject(of)
        found, own = _error_curve.foreseen(subject, epsilons), subject.study.epsilon
    return _drawn(ax, lambda axes: _error_curve.error_curve(axes, found, own=own))


def _subject(of: Any) -> Subject:
    """A release and a simulation have a document, an estimator its release."""
    document = of if isinstance(of, Mapping) else getattr(of, "document", getattr(of, "release_", None))
    if not isinstance(document, Mapping):
        raise RequestError(
            Code.BAD_ARGUMENT,
            f"there is nothing to draw in a {type(of).__name__}: give run.result, what "
            "load_release returns, a Simulation, or an estimator that was fitted",
        )
    return Subject.of(document)


def _drawn(ax: Axes | None, paint: Callable[[Axes], None], *, height: float = 4.0) -> Axes:
    with mpl.rc_context(STYLE):
        axes = ax if ax is not None else pyplot.subplots(figsize=(7.0, height), layout="constrained")[1]
        paint(axes)
    return axes
