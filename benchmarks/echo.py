"""Cost of `grpc.aio` alone: a round's bytes there and back over mutual TLS, one server and its clients, each
a process of its own. The keys and certificates are a federation's.

`python -m benchmarks.echo serve COORDINATOR DOWN` prints its port; `... call COORDINATOR KEY PORT UP` prints
the milliseconds of each call, of its CPU, and of the CPU of the same call by a blocking stub; `... stream
COORDINATOR KEY PORT UP` those of sending UP bytes in messages like the chunks of a large answer. COORDINATOR
is the coordinator's folder, KEY a site's key."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

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


async def call(target: str, credentials: grpc.ChannelCredentials, up: int) -> list[tuple[float, float]]:
    """Call one time after the other; milliseconds of each call and of its CPU."""
    times = []
    async with grpc.aio.secure_channel(target, credentials, options=OPTIONS) as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        for _ in range(WARM + CALLS):
            begin, cpu = time.perf_counter(), time.process_time()
            await method(bytes(up), timeout=60)
            times.append((1e3 * (time.perf_counter() - begin), 1e3 * (time.process_time() - cpu)))
    return times


def call_blocking(target: str, credentials: grpc.ChannelCredentials, up: int) -> list[float]:
    """The same without an event loop; milliseconds of CPU of each call."""
    times = []
    with grpc.secure_channel(target, credentials, options=OPTIONS) as channel:
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        for _ in range(WARM + CALLS):
            cpu = time.process_time()
            method(bytes(up), timeout=60)
            times.append(1e3 * (time.process_time() - cpu))
    return times


async def stream(target: str, credentials: grpc.ChannelCredentials, up: int) -> list[float]:
    """Send one large answer after the other; milliseconds of each."""
    times, slots = [], asyncio.Semaphore(PARALLEL_CHUNKS)
    async with grpc.aio.secure_channel(target, credentials, options=OPTIONS) as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)

        async def put(start: int) -> None:
            async with slots:
                await method(bytes(min(CHUNK_BYTES, up - start)), timeout=60)

        for _ in range(1 + STREAMS):
            begin = time.perf_counter()
            await asyncio.gather(*map(put, range(0, up, CHUNK_BYTES)))
            times.append(1e3 * (time.perf_counter() - begin))
    return times[1:]


def client(what: str, folder: Path, key: Path, port: int, up: int) -> None:
    """Print the times of calls, or of answers that are streamed."""
    pair, target = key.read_bytes(), f"127.0.0.1:{port}"
    credentials = grpc.ssl_channel_credentials(Files(folder).server.read_bytes(), pair, pair)
    if what == "stream":
        print(json.dumps([[one] for one in asyncio.run(stream(target, credentials, up))]))
        return
    times = asyncio.run(call(target, credentials, up))
    blocking = call_blocking(target, credentials, up)
    both = [(*one, other) for one, other in zip(times, blocking, strict=True)]
    print(json.dumps(both[WARM:]))


class Echo(NamedTuple):
    """Median milliseconds of one call, of its client's CPU, and of the CPU of one by a blocking stub."""

    ms: float
    cpu: float
    blocking_cpu: float


def echo(folder: Path, keys: Sequence[Path], up: int, down: int) -> Echo:
    """Measure calls of as many clients at once as there are keys."""
    return Echo(*map(median, zip(*_run("call", folder, keys, up, down), strict=True)))


def stream_ms(folder: Path, key: Path, up: int) -> float:
    """Median milliseconds of sending `up` bytes in messages like chunks of an answer."""
    return median(ms for (ms,) in _run("stream", folder, [key], up, 0))


def _run(what: str, folder: Path, keys: Sequence[Path], up: int, down: int) -> list[list[float]]:
    """Times of all clients, which run at once."""
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
        return [times for key, client in clients.items() for times in _times(key, client)]


def _times(key: Path, client: subprocess.Popen[str]) -> list[list[float]]:
    message, _ = client.communicate()
    if client.returncode:
        raise SystemExit(f"the client with {key} ended with {client.returncode}")
    times: list[list[float]] = json.loads(message)
    return times


def main() -> None:
    """One end of it."""
    what, folder, *rest = sys.argv[1:]
    if what == "serve":
        asyncio.run(serve(Path(folder), int(rest[0])))
    else:
        client(what, Path(folder), Path(rest[0]), int(rest[1]), int(rest[2]))


if __name__ == "__main__":
    main()
