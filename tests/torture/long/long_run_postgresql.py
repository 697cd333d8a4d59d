"""The long run, with the coordinator's store on a PostgreSQL server."""

from __future__ import annotations

from pathlib import Path

from tests.common.storage import cluster
from tests.torture.long.long_run import Size, long_run

SHARE = 0.4  # of the studies on a file


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """Return what is wrong, and figures."""
    with cluster.running() as server:
        return await long_run(folder, Size.scaled(SHARE * scale), server.database())
