"""Pages from templates, with translations, formats of numbers and times, and small SVG charts. Values are
escaped, and an undefined name is an error. The code holds the English texts; each other language is one
gettext catalogue, LANGUAGE/LC_MESSAGES/eigenveil.po. Style sheet classes colour the charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from gettext import GNUTranslations, NullTranslations
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from eigenveil.accounting.formatting import Amount, shown_down, shown_up

DOMAIN = "eigenveil"
ENGLISH = "en"


def mark(message: str) -> str:
    """Return `message` unchanged; mark it for the catalogues, to be translated where it is shown."""
    return message


MOMENT, DAY = mark("%Y-%m-%d %H:%M (UTC)"), mark("%Y-%m-%d")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Translator:
    """Translator to one language; a call takes a message and the values of its %(name)s placeholders."""

    language: str
    catalogue: NullTranslations

    def __call__(self, message: str, **values: object) -> str:
        translated = self.catalogue.gettext(message)
        return translated % values if values else translated

    def plural(self, one: str, many: str, number: int, **values: object) -> str:
        """Return the singular or plural form for `number`, which is also a placeholder value."""
        return self.catalogue.ngettext(one, many, number) % (values | {"number": self.number(number)})

    def moment(self, at: float) -> str:
        """Format Unix seconds as date and time, UTC."""
        return f"{datetime.fromtimestamp(at, UTC):{self(MOMENT)}}"

    def day(self, at: float) -> str:
        """Format Unix seconds as a date, UTC."""
        return f"{datetime.fromtimestamp(at, UTC):{self(DAY)}}"

    def number(self, value: float, digits: int = 4) -> str:
        """Format a number with at most `digits` significant digits; integers in full."""
        return self._set(f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}g}")

    def up(self, value: Amount, digits: int = 4) -> str:
        """Format a spent or guaranteed privacy amount, rounded up [P5]."""
        return self._set(shown_up(value, digits))

    def down(self, value: Amount, digits: int = 4) -> str:
        """Format a remaining or allowed privacy amount, rounded down [P5]."""
        return self._set(shown_down(value, digits))

    def _set(self, text: str) -> str:
        """Return a number with this language's decimal point and thousands separator."""
        point = self.catalogue.pgettext("decimal point", ".")
        return text.translate({ord("."): point, ord(","): self.catalogue.pgettext("between thousands", ",")})


class Languages:
    """Available languages: English and those with a catalogue in `folder`."""

    def __init__(self, folder: Path | None = None, first: str = ENGLISH) -> None:
        self._translators = {ENGLISH: Translator(language=ENGLISH, catalogue=NullTranslations())}
        for path in sorted(folder.glob(f"*/LC_MESSAGES/{DOMAIN}.mo")) if folder else []:
            name = path.parent.parent.name
            with path.open("rb") as file:
                self._translators[name] = Translator(language=name, catalogue=GNUTranslations(file))
        self._first = first if first in self._translators else ENGLISH

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._translators)

    def translator(self, name: str) -> Translator:
        """Return the translator of a language; the default language's if it is unknown."""
        return self._translators.get(name, self._translators[self._first])

    def preferred_language(self, header: str) -> str:
        """Return the preferred available language of an Accept-Language header; the default if none is."""
        return next((name for name in _preferred(header) if name in self._translators), self._first)


def _preferred(header: str) -> Iterable[str]:
    """Return language codes without country, in order of preference."""
    weighed: list[tuple[float, str]] = []
    for one in header.split(",")[:20]:
        name, _, weight = one.strip().partition(";")
        with suppress(ValueError):
            weight = weight.strip().removeprefix("q=") or "1"
            weighed.append((-float(weight), name.split("-")[0].lower()))
    return [name for _, name in sorted(weighed, key=lambda pair: pair[0])]


COMMON_FOLDER = Path(__file__).parent


class Pages:
    """Pages of one program, from the templates in `folder` and the shared ones. `program` is the name in the
    page header; `navigation` holds paths and their names, marked for the catalogues; `base` is the prefix of
    all paths."""

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
        loader, names = FileSystemLoader([folder, COMMON_FOLDER / "templates"]), languages.names
        self._environments = {name: _environment(loader, languages.translator(name)) for name in names}
        for environment in self._environments.values():
            environment.globals.update(base=base, program=program, navigation=navigation, languages=names)

    def language(self, request: Request) -> str:
        """Return the language that a person chose, or else the browser's preferred one."""
        chosen = getattr(getattr(request.state, "session", None), "language", "")
        return chosen or self.languages.preferred_language(request.headers.get("accept-language", ""))

    def translator(self, request: Request) -> Translator:
        """Return the translator of a request's language."""
        return self.languages.translator(self.language(request))

    def text(self, request: Request, template: str, **values: Any) -> str:
        """Return a rendered template, for a page or a part of one."""
        language, session = self.language(request), getattr(request.state, "session", None)
        here = {"language": language, "here": request.url.path, "session": session}
        here["csrf"] = getattr(session, "csrf", "")
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
    """Return a bar of the used share and then the requested one; `description` is the alternative text."""
    first = min(max(float(used), 0.0), 1.0)
    return Markup(
        '<svg class="gauge" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="whole" width="100" height="6"/>'
        '<rect class="used" width="{:.3f}" height="6"/>'
        '<rect class="wanted" x="{:.3f}" width="{:.3f}" height="6"/></svg>'
    ).format(description, 100 * first, 100 * first, 100 * min(max(float(wanted), 0.0), 1.0 - first))


def step_chart(
    points: Sequence[tuple[float, float]], description: str, labels: tuple[str, str, str]
) -> Markup:
    """Return a step chart of `points` (time, share), earliest first, with a limit line at 1. `description` is
    the alternative text; `labels` name the limit, the first time and the last."""
    first, right, below = points[0][0], WIDTH - LEFT, HEIGHT - BOTTOM
    span, top = (points[-1][0] - first) or 1.0, max(1.0, *(value for _, value in points))

    def place(time: float, value: float) -> tuple[float, float]:
        return LEFT + (right - LEFT) * (time - first) / span, below * (1 - 0.88 * value / top)

    places, limit = [place(*point) for point in points], place(first, 1.0)[1]
    steps = "".join(f"H{across:.1f}V{up:.1f}" for across, up in places[1:])
    return Markup(
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{{}}">'
        f'<path class="limit" d="M{LEFT:.1f},{limit:.1f}H{right:.1f}"/>'
        f'<path class="line" d="M{places[0][0]:.1f},{places[0][1]:.1f}{steps}"/>'
        f'<path class="axis" d="M{LEFT:.1f},{below:.1f}H{right:.1f}"/>'
        f'<text x="{LEFT:.1f}" y="{limit - 5:.1f}">{{}}</text>'
        f'<text x="{LEFT:.1f}" y="{HEIGHT - 6:.1f}">{{}}</text>'
        f'<text class="last" x="{right:.1f}" y="{HEIGHT - 6:.1f}">{{}}</text></svg>'
    ).format(description, *labels)


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
