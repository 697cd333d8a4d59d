"""Small pictures as SVG, without style of their own: classes of the style sheet colour them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from markupsafe import Markup

WIDTH, HEIGHT = 640, 180
LEFT, BOTTOM = 8, 24


def gauge(used: float | Fraction, wanted: float | Fraction, words: str) -> Markup:
    """A bar of what is used and, after it, of what is wanted besides: shares of the whole.

    `words` say what it shows, to who does not see it.
    """
    first = min(max(float(used), 0.0), 1.0)
    second = min(max(float(wanted), 0.0), 1.0 - first)
    return Markup(
        '<svg class="gauge" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="whole" width="100" height="6"/>'
        '<rect class="used" width="{:.3f}" height="6"/>'
        '<rect class="wanted" x="{:.3f}" width="{:.3f}" height="6"/></svg>'
    ).format(words, 100 * first, 100 * first, 100 * second)


def steps(
    points: Sequence[tuple[float, float]], most: float, words: str, labels: tuple[str, str, str]
) -> Markup:
    """A line from value to value in steps, under the line of `most`. `points` are (time, value), the earliest
    first; `words` say what it shows, `labels` name `most`, the first time and the last."""
    first, last = points[0][0], points[-1][0]
    span, top = (last - first) or 1.0, max(most, *(value for _, value in points)) or 1.0

    def place(time: float, value: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - 2 * LEFT) * (time - first) / span
        return across, (HEIGHT - BOTTOM) * (1 - 0.88 * value / top)

    start = place(*points[0])
    drawn = f"M{start[0]:.1f},{start[1]:.1f}" + "".join(
        f"H{across:.1f}V{up:.1f}" for across, up in (place(*point) for point in points[1:])
    )
    limit, below = place(first, most)[1], HEIGHT - BOTTOM
    lines = Markup(
        '<path class="limit" d="M{:.1f},{:.1f}H{:.1f}"/><path class="line" d="{}"/>'
        '<path class="axis" d="M{:.1f},{:.1f}H{:.1f}"/>'
    ).format(LEFT, limit, WIDTH - LEFT, drawn, LEFT, below, WIDTH - LEFT)
    written = Markup(
        '<text x="{:.1f}" y="{:.1f}">{}</text><text x="{:.1f}" y="{:.1f}">{}</text>'
        '<text class="last" x="{:.1f}" y="{:.1f}">{}</text>'
    ).format(LEFT, limit - 5, labels[0], LEFT, HEIGHT - 6, labels[1], WIDTH - LEFT, HEIGHT - 6, labels[2])
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}</svg>').format(
        WIDTH, HEIGHT, words, lines, written
    )


def bars(counts: Sequence[int]) -> Markup:
    """A small histogram, for the eye: whoever does not see it reads the numbers beside it."""
    top = max(counts, default=0) or 1
    drawn = Markup("").join(
        Markup('<rect x="{}" y="{:.1f}" width="0.9" height="{:.1f}"/>').format(
            place, 10 - 10 * count / top, 10 * count / top
        )
        for place, count in enumerate(counts)
    )
    return Markup(
        '<svg class="bars" viewBox="0 0 {} 10" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
    ).format(max(1, len(counts)), drawn)
