"""docs/figures/parties.svg: what each party sees, central beside secure; the same bytes each time."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

PICTURE = Path(__file__).resolve().parent / "figures" / "parties.svg"
WIDTH, HEIGHT, PANEL = 1000, 600, 500
INK, QUIET, EXACT, MASKED, NOISED = "#1f2933", "#52606d", "#b42318", "#475467", "#067647"
FILLS = {EXACT: "#fef3f2", MASKED: "#f2f4f7", NOISED: "#ecfdf3", INK: "#ffffff"}
SITES = ("hospital A", "hospital B", "hospital C")
WORDS = (
    "On the left each hospital sends exact totals to the coordinator, which sees them, adds noise and "
    "publishes the sum. On the right each hospital adds its share of the noise and masks before it sends; "
    "the coordinator sees noise from each, and the sum, in which masks cancel and all noise is."
)


PUBLISHED = "see what is published: noised sums"
NETWORK = "Who watches the network sees who talks, when, and how much."
LEFT_OVER = {
    "central": ("The operator is trusted with the totals,", "and to add the noise."),
    "secure-aggregation": (
        "Up to t hospitals that collude with the coordinator still",
        "find all the noise that is promised; more find less.",
        "Dashed: a secret of each pair; people compare the keys.",
    ),
}


def text(x: float, y: float, message: str, *, colour: str = INK, size: int = 14, weight: int = 400) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{colour}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="middle">{escape(message)}</text>'
    )


def box(x: float, y: float, width: float, height: float, colour: str, title: str, *lines: str) -> str:
    """A party, what it is called and what it sees."""
    middle = x + width / 2
    drawn = [
        (
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" fill="{FILLS[colour]}" '
            f'stroke="{colour}" stroke-width="1.5"/>'
        ),
        text(middle, y + 23, title, weight=600),
    ]
    drawn += [text(middle, y + 44 + 18 * i, line, colour=colour, size=13) for i, line in enumerate(lines)]
    return "\n".join(drawn)


def arrow(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    name = {EXACT: "exact", MASKED: "masked", NOISED: "noised"}[colour]
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" stroke-width="2.5" '
        f'marker-end="url(#{name})"/>'
    )


def hospitals(left: float, *, secure: bool) -> list[str]:
    """All three, what each does, and what it sends to the middle of the panel."""
    middle, sent, drawn = left + PANEL / 2, MASKED if secure else EXACT, []
    inside = ("adds its noise,", "then masks") if secure else ("its own records", "and exact totals")
    for i, name in enumerate(SITES):
        x = left + 22 + 156 * i
        drawn.append(box(x, 60, 144, 86, INK, name, *inside))
        drawn.append(arrow(x + 72, 146, middle + 100 * (i - 1), 238, sent))
    return drawn


def secrets(left: float) -> list[str]:
    """Of each pair of hospitals."""
    dashed = f'fill="none" stroke="{QUIET}" stroke-dasharray="4 3"/>'
    far = f"M{left + 94:g} 60 C {left + 130:g} 44, {left + 370:g} 44, {left + 406:g} 60"
    near = (f"M{left + 166 + 156 * i:g} 103 H {left + 178 + 156 * i:g}" for i in (0, 1))
    return [f'<path d="{path}" {dashed}' for path in (far, *near)]


def coordinator(middle: float, *, secure: bool) -> list[str]:
    """Drawing of the coordinator, its inputs and its output."""
    sent = MASKED if secure else EXACT
    states = "masked numbers: each alone is noise" if secure else "exact totals of each hospital"
    sees = (
        ("sees noise from each hospital;", "adds: masks cancel, noise of all stays")
        if secure
        else ("sees every hospital's exact totals;", "adds them, then adds noise")
    )
    return [
        f'<rect x="{middle - 160:g}" y="178" width="320" height="26" rx="13" fill="#fff" stroke="{sent}"/>',
        text(middle, 196, states, colour=sent, weight=600),
        box(middle - 160, 242, 320, 88, sent, "the coordinator and its operator", *sees),
        arrow(middle, 330, middle, 404, NOISED),
        text(middle + 62, 372, "noised sum", colour=NOISED, weight=600),
        box(middle - 160, 408, 320, 66, NOISED, "analysts, hospitals, the public", PUBLISHED),
    ]


def panel(left: float, *, secure: bool) -> str:
    """One trust, from the hospitals down to what is published, and what is left."""
    middle, name = left + PANEL / 2, "secure-aggregation" if secure else "central"
    rest = LEFT_OVER[name]
    drawn = [text(middle, 34, f'trust = "{name}"', size=18, weight=600)]
    drawn += hospitals(left, secure=secure)
    drawn += secrets(left) if secure else []
    drawn += coordinator(middle, secure=secure)
    drawn += [text(middle, 506 + 20 * i, line) for i, line in enumerate(rest)]
    drawn.append(text(middle, 580, NETWORK, colour=QUIET, size=13))
    return "\n".join(drawn)


def picture() -> str:
    """The whole drawing as SVG."""
    heads = "".join(
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{colour}"/></marker>'
        for name, colour in (("exact", EXACT), ("masked", MASKED), ("noised", NOISED))
    )
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f'<title>{escape(WORDS)}</title><g font-family="system-ui, sans-serif">',
        f"<defs>{heads}</defs>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<line x1="{PANEL}" y1="20" x2="{PANEL}" y2="{HEIGHT - 20}" stroke="#d0d5dd"/>',
        panel(0, secure=False),
        panel(PANEL, secure=True),
        "</g></svg>",
        "",
    ])  # fmt: skip


if __name__ == "__main__":
    PICTURE.write_text(picture())
