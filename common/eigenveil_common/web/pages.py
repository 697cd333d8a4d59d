"""Pages rendered from templates: values are escaped, and an undefined name is an error.

Small SVG charts, coloured by classes of the style sheet.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from eigenveil_common.web.languages import Languages, Translator

COMMON_FOLDER = Path(__file__).parent


class Pages:
    """Pages of one program, from the templates in `folder` and the shared ones.

    `program` is the name in the page header; `navigation` holds paths and their names, marked for the
    catalogues; `base` is the prefix of all paths.
    """

    def __init__(
        self,
        folder: Path,
        *,
        program: str,
        languages: Languages,
        navigation: Sequence[tuple[str, str]] = (),
        base: str = "",
    ) -> None:
        self.languages = languages
        self.base = base
        loader = FileSystemLoader([folder, COMMON_FOLDER / "templates"])
        common = {
            "base": base,
            "program": program,
            "navigation": tuple(navigation),
            "languages": languages.names,
        }
        self._environments = {
            name: _environment(loader, languages.translator(name)) for name in languages.names
        }
        for environment in self._environments.values():
            environment.globals.update(common)

    def language(self, request: Request) -> str:
        """Return the language that a person chose, or else the browser's preferred one."""
        session = getattr(request.state, "session", None)
        return getattr(session, "language", "") or self.languages.preferred_language(
            request.headers.get("accept-language", "")
        )

    def translator(self, request: Request) -> Translator:
        """Return the translator of a request's language."""
        return self.languages.translator(self.language(request))

    def text(self, request: Request, template: str, **values: Any) -> str:
        """Return a rendered template, for a page or a part of one."""
        language, session = self.language(request), getattr(request.state, "session", None)
        here = {
            "language": language,
            "here": request.url.path,
            "csrf": getattr(session, "csrf", ""),
            "session": session,
        }
        return self._environments[language].get_template(template).render(here | values)

    def render(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page as a response."""
        return HTMLResponse(self.text(request, template, **values), status_code=status)

    def piece(self, template: str, **values: Any) -> str:
        """Return a rendered part of a page for all readers: in the default language, without a session."""
        return self._environments[self.languages.preferred_language("")].get_template(template).render(values)


def _environment(loader: FileSystemLoader, translator: Translator) -> Environment:
    environment = Environment(
        loader=loader,
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        extensions=["jinja2.ext.i18n"],
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.install_gettext_translations(translator.catalogue, newstyle=True)  # type: ignore[attr-defined]
    environment.filters.update(
        moment=translator.moment,
        day=translator.day,
        number=translator.number,
        up=translator.up,
        down=translator.down,
    )
    return environment


WIDTH, HEIGHT = 640, 180
LEFT, BOTTOM = 8, 24


def gauge(used: float | Fraction, wanted: float | Fraction, description: str) -> Markup:
    """Return a bar of the used share and, after it, the requested share.

    `description` is the alternative text.
    """
    first = min(max(float(used), 0.0), 1.0)
    second = min(max(float(wanted), 0.0), 1.0 - first)
    return Markup(
        '<svg class="gauge" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="whole" width="100" height="6"/>'
        '<rect class="used" width="{:.3f}" height="6"/>'
        '<rect class="wanted" x="{:.3f}" width="{:.3f}" height="6"/></svg>'
    ).format(description, 100 * first, 100 * first, 100 * second)


def step_chart(
    points: Sequence[tuple[float, float]], most: float, description: str, labels: tuple[str, str, str]
) -> Markup:
    """Return a step chart of `points` (time, value), earliest first, with a limit line at `most`.

    `description` is the alternative text; `labels` name `most`, the first time and the last.
    """
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
        WIDTH, HEIGHT, description, lines, written
    )


def histogram_bars(counts: Sequence[int]) -> Markup:
    """Return a small decorative histogram; the numbers are in the text beside it."""
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
