"""Cost of `grpc.aio` alone: a round's bytes there and back over mutual TLS, one server and its clients, each
a process of its own. The keys and certificates are a federation's.

`python -m benchmarks.echo serve COORDINATOR DOWN` prints its port; `... call COORDINATOR KEY PORT UP` prints
the milliseconds of each call, `... stream COORDINATOR KEY PORT UP` those of sending UP bytes in messages like
the chunks of a large answer. COORDINATOR is the coordinator's folder, KEY a site's key.pem."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Protocol

import grpc

from eigenveil_client.site.daemon.sender import PARALLEL_CHUNKS
from eigenveil_common.rpc import CHUNK_BYTES, OPTIONS
from eigenveil_server.config import Files

METHOD, CALLS, WARM, STREAMS = "/bench.Echo/Call", 200, 20, 12
COMMAND = (sys.executable, "-m", "benchmarks.echo")


async def serve(folder: Path, down: int) -> None:
    """Answer every call with `down` bytes, until killed."""
    files, answer = Files(folder), bytes(down)

    async def call(request: bytes, context: object) -> bytes:
        return answer

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(call)
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", {"Call": handler}),))
    pair = (files.server_key.read_bytes(), files.server.read_bytes())
    credentials = grpc.ssl_server_credentials([pair], files.ca.read_bytes(), require_client_auth=True)
    print(server.add_secure_port("127.0.0.1:0", credentials), flush=True)
    await server.start()
    await server.wait_for_termination()


class Method(Protocol):
    """A method of the server."""

    def __call__(self, request: bytes, *, timeout: float) -> Awaitable[bytes]: ...


Send = Callable[[Method], Awaitable[object]]


async def _timed(folder: Path, key: Path, port: int, send: Send, times: int) -> None:
    """Send over and over, and print how long each took."""
    pair, taken = key.read_bytes(), []
    credentials = grpc.ssl_channel_credentials(Files(folder).server.read_bytes(), pair, pair)
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=OPTIONS) as channel:
        method: Method = channel.unary_unary(METHOD)
        for _ in range(times):
            begin = time.perf_counter()
            await send(method)
            taken.append(1e3 * (time.perf_counter() - begin))
    print(json.dumps(taken))


async def call(folder: Path, key: Path, port: int, up: int) -> None:
    """Call one time after the other."""
    await _timed(folder, key, port, lambda method: method(bytes(up), timeout=60), WARM + CALLS)


async def stream(folder: Path, key: Path, port: int, up: int) -> None:
    """Send one large answer after the other."""
    slots = asyncio.Semaphore(PARALLEL_CHUNKS)

    async def put(method: Method, start: int) -> None:
        async with slots:
            await method(bytes(min(CHUNK_BYTES, up - start)), timeout=60)

    async def send(method: Method) -> None:
        await asyncio.gather(*(put(method, start) for start in range(0, up, CHUNK_BYTES)))

    await _timed(folder, key, port, send, 1 + STREAMS)


def echo_ms(folder: Path, keys: Sequence[Path], up: int, down: int) -> float:
    """Median milliseconds of one call, of as many clients at once as there are keys."""
    return median(time for times in _run("call", folder, keys, up, down) for time in times[WARM:])


def stream_ms(folder: Path, key: Path, up: int) -> float:
    """Median milliseconds of sending `up` bytes in messages like chunks of an answer."""
    ((_, *times),) = _run("stream", folder, [key], up, 0)
    return median(times)


def _run(what: str, folder: Path, keys: Sequence[Path], up: int, down: int) -> list[list[float]]:
    """Times of each client, all at once."""
    with ExitStack() as ends:

        def run(*words: str | Path) -> subprocess.Popen[str]:
            process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True)
            ends.callback(process.wait)
            ends.callback(process.kill)  # which comes first, however this ends
            return process

        server = run("serve", folder, str(down))
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        clients = {key: run(what, folder, key, port, str(up)) for key in keys}
        return [_times(key, client) for key, client in clients.items()]


def _times(key: Path, client: subprocess.Popen[str]) -> list[float]:
    message, _ = client.communicate()
    if client.returncode:
        raise SystemExit(f"the client with {key} ended with {client.returncode}")
    times: list[float] = json.loads(message)
    return times


def main() -> None:
    """One end of it."""
    what, folder, *rest = sys.argv[1:]
    if what == "serve":
        asyncio.run(serve(Path(folder), int(rest[0])))
    else:
        end = call if what == "call" else stream
        asyncio.run(end(Path(folder), Path(rest[0]), int(rest[1]), int(rest[2])))


if __name__ == "__main__":
    main()
