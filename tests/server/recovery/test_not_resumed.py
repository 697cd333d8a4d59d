"""A coordinator whose studies cannot be resumed ends and says so: it does not go on without them."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import NoReturn

import pytest

from eigenveil.errors import Code, InternalError
from eigenveil.identity import Role
from eigenveil.numerics.encoding import digest
from eigenveil_server.config import Config
from tests.server.rig import made, serving, study_toml


def statement(config: Config, text: str) -> None:
    connection = sqlite3.connect(config.files.database)
    with connection:
        connection.executescript(text)
    connection.close()


NO_PLAN = digest("plan", [])


NONE_AWAITED = "DELETE FROM awaited_checkpoints"


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ("DROP TABLE awaited_checkpoints", Code.STORAGE),
        (f"UPDATE studies SET plan_json = CAST('rubbish' AS BLOB); {NONE_AWAITED}", Code.STORAGE),
        (
            f"UPDATE studies SET plan_json = CAST('[]' AS BLOB), digest = '{NO_PLAN}'; {NONE_AWAITED}",
            Code.BUG,
        ),
    ],
)
async def test_studies_that_cannot_be_resumed_after_the_last_head_end_the_process(
    tmp_path: Path, damage: str, code: Code
) -> None:
    """Found here: the process went on, drove no study, and said nothing."""
    ended: list[Code] = []

    def noted(problem: InternalError) -> NoReturn:
        ended.append(problem.code)
        raise problem

    config = made(tmp_path / "c")
    async with serving(config) as rig:
        await rig.client(Role.SITE, "anna")
        ada = await rig.client(Role.ANALYST, "ada")
        await ada.submit(study_toml(sites=("anna",)))
    statement(config, "INSERT INTO awaited_checkpoints VALUES ('anna')")
    async with serving(config, fatal=noted):
        statement(config, damage)
        async with asyncio.timeout(20):
            while not ended:
                await asyncio.sleep(0.05)
    assert ended == [code]
