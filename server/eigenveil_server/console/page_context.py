"""Context of all console pages: daemon services, data to read, threads, and the templates of each role."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request
from starlette.responses import HTMLResponse

from eigenveil.accounting.formatting import percent_up, shown_up
from eigenveil.accounting.zcdp import Cost
from eigenveil_common.storage.database import Database
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_common.web.application import PageGateway
from eigenveil_common.web.pages import Languages, Pages, gauge
from eigenveil_common.web.sessions import Origins, Sessions
from eigenveil_server.config import Config
from eigenveil_server.front.gateway import Gateway
from eigenveil_server.pki.registry import Registry
from eigenveil_server.rpc.callers import Admissions
from eigenveil_server.rpc.sites import SiteDirectory, SiteSessions
from eigenveil_server.storage.database import Store, existing_store
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.study_reads import Studies
from eigenveil_server.storage.submissions import StudyLists
from eigenveil_server.studies.engine import StudyEngine
from eigenveil_server.studies.runtime import Runtime

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 2  # so that many pages at once leave processors to the rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonServices:
    """Services of the daemon that the console needs."""

    config: Config
    runtime: Runtime
    engine: StudyEngine
    registry: Registry
    admissions: Admissions
    directory: SiteDirectory
    sessions: SiteSessions
    front: Gateway

    def online(self) -> dict[str, int]:
        """Return the sites whose daemon is connected, with the start time of the connection."""
        found = self.sessions.connections.items()
        return {site: since for site, (peer, since) in found if self.front.is_connected(peer)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleData:
    """Data for pages: a separate connection to the database, and the ledger in memory."""

    config: Config
    store: Store
    studies: Studies
    lists: StudyLists
    registry: Registry
    ledger: LedgerStore

    @classmethod
    def of(cls, config: Config, repository: Repository) -> ConsoleData:
        """Open the connection. Raises InternalError: code `storage`."""
        store = existing_store(config)
        return cls(
            config=config,
            store=store,
            studies=Studies(store.reader),
            lists=StudyLists(store.reader),
            registry=Registry(store, config.federation, repository.clock),
            ledger=repository.ledger,
        )

    @property
    def reader(self) -> Database:
        return self.store.reader

    def left(self) -> Cost:
        """Return the budget that is neither spent nor reserved."""
        totals = self.ledger.totals
        limit, committed = totals.limit, totals.committed
        return Cost(
            micro_rho=max(0, limit.micro_rho - committed.micro_rho),
            atto_delta=max(0, limit.atto_delta - committed.atto_delta),
        )


TEMPLATES = Path(__file__).parent / "templates"
BOTH = (("/", "Overview"), ("/studies", "Studies"), ("/budget", "Budget"))
ANALYST = (*BOTH, ("/submit", "New study"))
OPERATOR = (*BOTH, ("/people", "Participants"), ("/refusals", "Refusals"), ("/audit", "Audit log"))
COOKIE = "eigenveil-console"


class PageContext:
    """Services, data and templates of all pages, the same for both roles but for their navigation.
    `formatters` are names in templates. `gateway` serves browsers under the Host names `hosts`."""

    def __init__(
        self,
        serving: DaemonServices,
        data: ConsoleData,
        hosts: frozenset[str],
        formatters: Mapping[str, Any],
    ) -> None:
        self.serving = serving
        self.data = data
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="console")
        program = f"eigenveil · {serving.config.federation}"
        self._pages = Pages(TEMPLATES, program=program, languages=Languages(), navigation=ANALYST)
        self._formatters = {"gauge": gauge, "shown_up": shown_up, "percent_up": percent_up, **formatters}
        origins = Origins(scheme="https", hosts=hosts)
        self.gateway = PageGateway(pages=self._pages, sessions=Sessions(), origins=origins, cookie=COOKIE)

    async def read(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `work`, run on a thread of the console."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *args, **kwargs))

    async def render(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a page for the visitor, on another thread."""
        visitor = request.state.visitor
        given = self._formatters | ({"navigation": OPERATOR} if visitor.operates else {})
        given |= {"visitor": visitor, **values}
        return await asyncio.to_thread(self._pages.render, request, template, status, **given)

    def piece(self, template: str, **values: Any) -> str:
        """Render a fragment of a page, the same for all its viewers."""
        return self._pages.piece(template, **{**self._formatters, **values})

    def close(self) -> None:
        self._threads.shutdown()
        self.data.store.close()
