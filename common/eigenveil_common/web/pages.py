"""Templates made into pages: everything is escaped, and a name that is not given is an error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from eigenveil_common.web.messages import Languages, Words

OWN = Path(__file__).parent


class Pages:
    """The pages of one program: the templates of `folder`, then ours.

    `program` is what is written above each page; `navigation` are paths and their names, marked for the
    catalogues; `base` is what all paths begin with.
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
        loader = FileSystemLoader([folder, OWN / "templates"])
        common = {
            "base": base,
            "program": program,
            "navigation": tuple(navigation),
            "languages": languages.names,
        }
        self._made = {name: _environment(loader, languages.words(name)) for name in languages.names}
        for made in self._made.values():
            made.globals.update(common)

    def language(self, request: Request) -> str:
        """The language that a person chose, or else that the browser asks for."""
        session = getattr(request.state, "session", None)
        return getattr(session, "language", "") or self.languages.accepted(
            request.headers.get("accept-language", "")
        )

    def words(self, request: Request) -> Words:
        """The texts of a request's language."""
        return self.languages.words(self.language(request))

    def text(self, request: Request, template: str, **values: Any) -> str:
        """A template filled in, for a page or a piece of one."""
        language, session = self.language(request), getattr(request.state, "session", None)
        here = {
            "language": language,
            "here": request.url.path,
            "csrf": getattr(session, "csrf", ""),
            "session": session,
        }
        return self._made[language].get_template(template).render(here | values)

    def render(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """A page."""
        return HTMLResponse(self.text(request, template, **values), status_code=status)

    def piece(self, template: str, **values: Any) -> str:
        """A piece of a page for everybody who has it open: in the first language, and without a session."""
        return self._made[self.languages.accepted("")].get_template(template).render(values)


def _environment(loader: FileSystemLoader, words: Words) -> Environment:
    made = Environment(
        loader=loader,
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        extensions=["jinja2.ext.i18n"],
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.install_gettext_translations(words.catalogue, newstyle=True)  # type: ignore[attr-defined]
    made.filters.update(moment=words.moment, day=words.day, number=words.number, up=words.up, down=words.down)
    return made
