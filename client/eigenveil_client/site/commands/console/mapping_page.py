"""Console page of the mapping: which column of the records is which of the dictionary, and its form."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from eigenveil_client.site import config as site_config
from eigenveil_client.site.commands.first_day.map_command import mapping_view
from eigenveil_client.site.mapping.changes import MappingSetting, apply_changes
from eigenveil_client.site.state.store_access import runs_outdated
from eigenveil_common.trusted_files import check_trusted
from eigenveil_common.web.pages import Pages

PATH = "/mapping"


def mapping_routes(config_file: Path, pages: Pages) -> list[Route]:
    """Return the routes of the page and its form."""
    return [
        Route(PATH, partial(_show_mapping, config_file, pages)),
        Route(PATH, partial(_change_mapping, config_file, pages), methods=["POST"]),
    ]


async def _show_mapping(config_file: Path, pages: Pages, request: Request) -> Response:
    """Return the page: the mapping in force, open questions, and the form for changes."""

    def look() -> dict[str, Any]:
        view, config = mapping_view(config_file), site_config.load(config_file)
        dictionary = site_config.dictionary_in_force(config)
        named = {one.header for one in view.mapped} | {one.header for one in view.proposed}
        headers = sorted({*view.unmapped, *named})
        columns = [one.name for one in dictionary.columns]
        return {"view": view, "headers": headers, "columns": columns, "outdated": runs_outdated(config)}

    return pages.render(request, "mapping.html", **await run_in_threadpool(look))


async def _change_mapping(config_file: Path, pages: Pages, request: Request) -> Response:
    """Write the change that a form states into site.toml, and show the page again."""
    form = await request.form()

    def change() -> None:
        check_trusted([config_file])
        removed = _field(form, "remove")
        wanted = MappingSetting(
            header=_field(form, "header"), column=_field(form, "column"), unit=_field(form, "unit")
        )
        apply_changes(config_file, [] if removed else [wanted], [removed] if removed else [])

    await run_in_threadpool(change)
    return RedirectResponse(f"{pages.base}{PATH}", status_code=303)


def _field(form: FormData, name: str) -> str:
    sent = form.get(name)
    return sent.strip() if isinstance(sent, str) else ""
