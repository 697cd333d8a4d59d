"""The page of a site as a program: on this machine alone, let in by a link that is printed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from eigenveil.errors import Code, RequestError
from eigenveil_client.site import config as site_config
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.state.opening import opened
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.process import forbid_core_dumps
from eigenveil_common.web.application import Door
from eigenveil_common.web.guard import Origins
from eigenveil_common.web.links import ByLink
from eigenveil_common.web.messages import ENGLISH, Languages, mark
from eigenveil_common.web.pages import Pages
from eigenveil_common.web.serving import LOOPBACK, listening, serve_until_stopped
from eigenveil_common.web.sessions import LINK_SECONDS, Sessions

HERE = Path(__file__).parent
NAVIGATION = (
    ("/", mark("Studies")),
    ("/sent", mark("What left")),
    ("/columns", mark("Your data")),
    ("/budget", mark("Budget")),
    ("/connection", mark("Connection")),
)
OWNER = "site"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Console:
    """What every page is made with. The configuration is read, and the state opened, anew for each: commands
    and a daemon may change both beside it."""

    config_file: Path
    pages: Pages

    async def from_store(self, look: Callable[[SiteConfig, SiteStore], T]) -> T:
        """What `look` finds in the site's state, in a thread."""

        def done() -> T:
            config = site_config.load(self.config_file)
            with opened(config) as store:
                return look(config, store)

        return await run_in_threadpool(done)

    async def from_config(self, look: Callable[[SiteConfig], T]) -> T:
        """The same without the state."""
        return await run_in_threadpool(lambda: look(site_config.load(self.config_file)))

    def page(self, request: Request, template: str, **values: Any) -> Response:
        return self.pages.render(request, template, **values)


def languages(first: str = ENGLISH) -> Languages:
    return Languages(HERE / "locale", first)


def application(config_file: Path, port: int, first: str = ENGLISH) -> tuple[ASGIApp, ByLink]:
    """The pages for a browser that finds them at `port`, and the gate whose links lead in."""
    from eigenveil_client.site.commands.console import decisions, sent, studies, upkeep
    from eigenveil_common.web.application import application as gated

    name = site_config.load(config_file).name
    pages = Pages(HERE / "templates", program=name, languages=languages(first), navigation=NAVIGATION)
    hosts = frozenset(f"{host}:{port}" for host in (LOOPBACK, "localhost"))
    door = Door(
        pages=pages,
        sessions=Sessions(),
        origins=Origins(scheme="http", hosts=hosts),
        cookie=f"eigenveil-site-{port}",
    )
    gate, console = ByLink(door=door), Console(config_file=config_file, pages=pages)
    routes = [one for room in (studies, decisions, sent, upkeep) for one in room.routes(console)]
    return gated(routes, door=door, gate=gate, doors=[gate.entrance()]), gate


def serve(config_file: Path, port: int, language: str) -> None:
    """Print a link, and serve until SIGTERM or SIGINT.

    Raises:
        RequestError: the port is taken, or as loading the configuration.
    """
    forbid_core_dumps()
    try:
        bound = listening(LOOPBACK, port)
    except OSError as problem:
        raise RequestError(
            Code.BAD_ARGUMENT,
            f"port {port}: {problem.strerror}; leave --port out for one that is free",
        ) from problem
    with bound:
        here: int = bound.getsockname()[1]
        app, gate = application(config_file, here, language)
        click.echo(f"Open this link in a browser on this machine, within {LINK_SECONDS // 60:g} minutes:")
        click.echo(f"  http://{LOOPBACK}:{here}{gate.link(OWNER)}")
        click.echo("It lets one browser in, once. Ctrl-C closes the page.")
        serve_until_stopped(app, bound)
