"""Server of the site's console: on this machine only, opened by a one-time link."""

from __future__ import annotations

import secrets
from pathlib import Path

import click
from starlette.types import ASGIApp

from eigenveil.errors import Code, RequestError
from eigenveil_client.site import config as site_config
from eigenveil_client.site.commands.console.pages import Console, routes
from eigenveil_common.process_limits import forbid_core_dumps
from eigenveil_common.web.application import LinkGate, PageGateway
from eigenveil_common.web.application import application as gated
from eigenveil_common.web.pages import ENGLISH, Languages, Pages, mark
from eigenveil_common.web.serving import LOOPBACK, listening_socket, serve_until_stopped
from eigenveil_common.web.sessions import LINK_SECONDS, Origins, Sessions

HERE = Path(__file__).parent
NAVIGATION = (
    ("/", mark("Studies")),
    ("/sent", mark("What left")),
    ("/columns", mark("Your data")),
    ("/mapping", mark("Your columns")),
    ("/budget", mark("Budget")),
    ("/connection", mark("Connection")),
)
OWNER = "site"


def languages(first: str = ENGLISH) -> Languages:
    return Languages(HERE / "locale", first)


def application(
    config_file: Path, port: int, first: str = ENGLISH, base: str = ""
) -> tuple[ASGIApp, LinkGate]:
    """Return the console for a browser at `port` below `base`, and the gate that makes its links."""
    name = site_config.load(config_file).name
    pages = Pages(
        HERE / "templates", program=name, languages=languages(first), navigation=NAVIGATION, base=base
    )
    hosts = frozenset(f"{host}:{port}" for host in (LOOPBACK, "localhost"))
    gateway = PageGateway(
        pages=pages,
        sessions=Sessions(),
        origins=Origins(scheme="http", hosts=hosts),
        cookie=f"eigenveil-site-{port}",
    )
    gate, console = LinkGate(gateway=gateway), Console(config_file=config_file, pages=pages)
    return gated(routes(console), gateway=gateway, gate=gate, public_routes=[gate.entrance()]), gate


def serve(config_file: Path, port: int, language: str) -> None:
    """Print a link, and serve until SIGTERM or SIGINT. Raises RequestError: the port is taken, or as loading
    the configuration."""
    forbid_core_dumps()
    try:
        bound = listening_socket(LOOPBACK, port)
    except OSError as problem:
        raise RequestError(
            Code.BAD_ARGUMENT,
            f"port {port}: {problem.strerror}; without --port a free one is used",
        ) from problem
    with bound:
        here: int = bound.getsockname()[1]
        # A browser sends cookies of this address to all its ports, also to another user's server. A secret
        # path prevents it: the cookie is sent below this path only.
        app, gate = application(config_file, here, language, f"/{secrets.token_urlsafe(12)}")
        click.echo(f"Open this link in a browser on this machine, within {LINK_SECONDS // 60:g} minutes:")
        click.echo(f"  http://{LOOPBACK}:{here}{gate.link(OWNER)}")
        click.echo("It works once, in one browser. Ctrl-C ends the console.")
        serve_until_stopped(app, bound)
