"""The long run, with the coordinator's store on a PostgreSQL server: fewer studies over half of the sites,
too few to judge the coordinator's own growth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.common.storage import cluster
from tests.torture.long.long_run import SITES, Size, long_run

SHARE = 0.4  # of the studies on a file


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """Return what is wrong, and figures."""
    size = replace(Size.scaled(SHARE * scale), sites=max(3, round(SITES / 2 * min(1.0, scale))))
    with cluster.running() as server:
        return await long_run(folder, size, server.database())
