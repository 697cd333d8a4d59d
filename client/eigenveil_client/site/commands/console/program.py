"""The page of a site as a program: on this machine alone, let in by a link that is printed once."""

from __future__ import annotations

import secrets
from pathlib import Path

import click
from starlette.types import ASGIApp

from eigenveil.errors import Code, RequestError
from eigenveil_client.site import config as site_config
from eigenveil_client.site.commands.console import decisions, sent, studies, upkeep
from eigenveil_client.site.commands.console.room import Console
from eigenveil_common.process import forbid_core_dumps
from eigenveil_common.web.application import Door
from eigenveil_common.web.application import application as gated
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


def languages(first: str = ENGLISH) -> Languages:
    return Languages(HERE / "locale", first)


def application(config_file: Path, port: int, first: str = ENGLISH, base: str = "") -> tuple[ASGIApp, ByLink]:
    """The pages for a browser that finds them at `port` below `base`, and the gate whose links lead in."""
    name = site_config.load(config_file).name
    pages = Pages(
        HERE / "templates", program=name, languages=languages(first), navigation=NAVIGATION, base=base
    )
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
        # A browser sends cookies of this address to every port of it, and another user may serve one: but
        # only below their own path, which nobody else knows.
        app, gate = application(config_file, here, language, f"/{secrets.token_urlsafe(12)}")
        click.echo(f"Open this link in a browser on this machine, within {LINK_SECONDS // 60:g} minutes:")
        click.echo(f"  http://{LOOPBACK}:{here}{gate.link(OWNER)}")
        click.echo("It lets one browser in, once. Ctrl-C closes the page.")
        serve_until_stopped(app, bound)
