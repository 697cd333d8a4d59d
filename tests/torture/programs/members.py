"""The members of the federation that random programs run on, enrolled once, and their records."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from eigenveil.identity import Role
from eigenveil.noise.source import NoiseSpec
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil_client.connection.identity import enrol
from eigenveil_common.files import write_secret
from eigenveil_server.admin.setup import join_file
from tests.server.rig import HOUR, SITES, made, serving
from tests.torture.masked.known import exchange_key_cards

COORDINATOR, ANALYST = "coordinator", "ada"
ROWS = {"anna": 42, "bert": 68, "carl": 110}  # no sum of some is the sum of others, or of one twice
COLUMNS = 3


class NoNoise:
    """Nothing is added, so that a double count shows exactly; its releases say that they are not private."""

    private = False

    def draw(self, spec: NoiseSpec) -> IntArray:
        return frozen(np.zeros(spec.length, dtype=np.int64))

    def uniform(self, count: int) -> FloatArray:
        return np.full(count, 0.5)


def one_hot(site: str) -> FloatArray:
    values = np.zeros((ROWS[site], COLUMNS))
    values[:, SITES.index(site)] = 0.75
    return values


@contextmanager
def template() -> Iterator[Path]:
    """A federation whose members have enrolled, to be copied by every program."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        asyncio.run(_enrolled(folder))
        yield folder


async def _enrolled(folder: Path) -> None:
    async with serving(made(folder / COORDINATOR)) as rig:
        members = {ANALYST: Role.ANALYST} | dict.fromkeys(SITES, Role.SITE)
        for name, role in members.items():
            path = folder / f"{name}.join"
            join = join_file(rig.config, role, name, HOUR, None)
            join |= {
                "coordinator": f"127.0.0.1:{rig.ports.port}",
                "enrol": f"127.0.0.1:{rig.ports.enrol_port}",
            }
            write_secret(path, json.dumps(join).encode())
            (folder / name).mkdir()
            await asyncio.to_thread(enrol, path, folder / name / "identity")
    exchange_key_cards({name: folder / name / "identity" for name in SITES})


__all__ = ["ANALYST", "COORDINATOR", "SITES", "NoNoise", "one_hot", "template"]
