"""`python -m tests.torture.networks.slow_line PORT HOST TARGET DELAY`: bytes arrive DELAY seconds late."""

from __future__ import annotations

import asyncio
import sys

from tests.network.forwarders import Middle


async def main(port: int, host: str, target: int, delay: float) -> None:
    async with Middle(target=target, host=host, delay=delay).listening(port):
        print('{"listening": true}', flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
