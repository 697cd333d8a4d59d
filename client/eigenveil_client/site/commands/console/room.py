"""What every page of a site is made with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from eigenveil_client.site import config as site_config
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.state.opening import opened
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.web.pages import Pages

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
