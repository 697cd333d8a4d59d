"""What analysts wrote is planned one wish at a time, in turns."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from tests.server.rig import made, serving


def test_nobodys_second_wish_goes_before_anothers_first(tmp_path: Path) -> None:
    planned: list[str] = []
    begin = threading.Event()

    def plan(name: str) -> None:
        begin.wait()
        planned.append(name)

    async def scenario() -> None:
        async with serving(made(tmp_path / "c")) as rig:
            wish = rig.daemon.resources.draft
            wishes = [asyncio.create_task(wish("ada", plan, f"ada's {index}")) for index in range(3)]
            await asyncio.sleep(0)
            wishes.append(asyncio.create_task(wish("bob", plan, "bob's")))
            await asyncio.sleep(0)
            begin.set()
            await asyncio.gather(*wishes)

    asyncio.run(scenario())
    assert planned == ["ada's 0", "bob's", "ada's 1", "ada's 2"]
