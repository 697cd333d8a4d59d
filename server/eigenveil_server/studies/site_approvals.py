"""At which sites a person is being asked about one study, and how long its rounds wait for that word [R5]."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress

from eigenveil_server.clock import Clock
from eigenveil_server.studies.open_round import LATE, OpenRound

HOUR_MS = 3_600_000
LOOK_SECONDS = 5.0
SILENT_SECONDS = 3600.0  # a site that says nothing for so long is gone, or was denied: nobody waits for it
UNDECIDED = "nobody has approved the study there"


class SiteApprovals:
    """Only the study's own `sites` count, and nobody is waited for beyond `ends` (Unix milliseconds)."""

    def __init__(self, sites: Collection[str], ends: int, clock: Clock) -> None:
        self._sites = frozenset(sites)
        self.ends = ends
        self._clock = clock
        self._told: set[str] = set()
        self._heard: dict[str, float] = {}  # when each of those who ask said so last

    @property
    def asking(self) -> Collection[str]:
        """Sites where a person is being asked, as each of them said last."""
        return tuple(self._heard)

    def hear(self, site: str, *, asks: bool) -> bool:
        """Note whether a person is being asked at `site`; whether nobody was told before."""
        if not asks or site not in self._sites:
            self._heard.pop(site, None)
            return False
        self._heard[site] = asyncio.get_running_loop().time()
        news = site not in self._told
        self._told.add(site)
        return news

    async def answered(self, opened: OpenRound, seconds: float) -> None:
        """Wait until `opened` is ready, or for `seconds` in which no person is being asked whom it needs."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while not opened.ready.is_set() and loop.time() < ends:
            look = min(ends - loop.time(), LOOK_SECONDS, seconds / 10)
            with suppress(TimeoutError):
                await asyncio.wait_for(opened.ready.wait(), look)
            if self._clock() < self.ends and opened.needs(self._present()):
                ends = loop.time() + seconds

    def _present(self) -> list[str]:
        now = asyncio.get_running_loop().time()
        return [site for site, heard in self._heard.items() if now - heard < SILENT_SECONDS]

    def reasons(self, opened: OpenRound) -> str:
        """Who is not in, and why."""
        late = {site for site, reason in opened.absent().items() if reason == LATE}
        undecided = dict.fromkeys(late.intersection(self.asking), UNDECIDED)
        return "; ".join(f"{site}: {reason}" for site, reason in (opened.absent() | undecided).items())
