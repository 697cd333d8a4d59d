"""A gRPC server that serves the methods it was given and looks at no other.

grpcio 1.84 and 1.85 end a whole `grpc.aio` server, and sometimes its process by a segmentation fault, when
one peer names a method in bytes that are no UTF-8: the loop that takes calls decodes the name of whatever is
not a registered method. On the enrolment listener anybody could do that. So such calls are never taken:
gRPC's core lets them wait, a bounded number of them, and drops them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
from grpc._cython import cygrpc

# Calls of one method, or of none, that wait to be taken: beyond the first number some are refused, beyond the
# second all. The front door lets 60 calls of one certificate pass at once, so that a few of them on a busy
# machine do not fill this; nor do a thousand sites that all answer in one moment.
PENDING = (("grpc.server.max_pending_requests", 2048), ("grpc.server.max_pending_requests_hard_limit", 2560))
# Seconds; nobody takes a call to an unknown method. One to a known method is taken at once, or when its turn
# has come among those of all sites: one that was dropped meanwhile would cost a new connection.
UNTAKEN = ("grpc.server_max_unrequested_time_in_server", 10)


class _OnlyRegistered(cygrpc.AioServer):  # type: ignore[misc]  # Cython tells no types
    """Takes calls to registered methods only."""

    def _make_request_call_future(self, method: bytes | None) -> asyncio.Future[Any]:
        if method is None:  # any other method: this future never comes true, so none is taken
            return asyncio.get_running_loop().create_future()
        future: asyncio.Future[Any] = super()._make_request_call_future(method)
        return future


def listening(
    *interceptors: grpc.aio.ServerInterceptor,
    options: Sequence[tuple[str, int | str]],
    maximum_concurrent_rpcs: int,
) -> grpc.aio.Server:
    """As `grpc.aio.server`; its methods must be registered, as the generated code does."""
    server = grpc.aio.server()
    server._server = _OnlyRegistered(  # type: ignore[attr-defined]
        asyncio.get_running_loop(),
        None,
        (),
        interceptors,
        (*options, *PENDING, UNTAKEN),
        maximum_concurrent_rpcs,
    )
    return server
