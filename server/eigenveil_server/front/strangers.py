"""Sockets whose TLS handshake has not begun: each costs a file descriptor and about 2 KiB.

Nothing of TLS is made for one before its first record, which holds the ClientHello, has come as a whole.
Until then its bytes wait in the kernel, which wakes this process for no fewer (SO_RCVLOWAT), and only the
header of the record is looked at: what kind it is, and how long. Strangers who say nothing are let go after a
while, and the oldest of the address with the most makes room for the next one.

They come and go by thousands a second when somebody attacks, so what each costs is what an honest caller
waits for. They have an epoll object of their own, which needs no callback for each, and one timer lets go
whoever was silent for too long.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import select
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from eigenveil_common.rpc import HANDSHAKE_MS
from eigenveil_server.front.by_address import ByAddress

MOST_STRANGERS = 1024  # before or in their handshake: after a restart every site comes back at once
BACKLOG = 4096  # in the kernel; beyond it a newcomer is tried again after a second
AT_ONCE = 64  # accepted, and looked at, in one pass of the event loop
SWEEP_SECONDS = 1.0  # between two looks at who has said nothing for too long
AGAIN_SECONDS = 1.0  # after there was no file descriptor or memory for one more
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
HEADER = struct.Struct("!BBBH")  # of a TLS record: kind, version, and the bytes that follow (RFC 8446, 5.1)
HANDSHAKE, MAJOR, MOST_RECORD_BYTES = 22, 3, 2**14


@dataclass(slots=True, eq=False)
class Stranger:
    """One accepted socket, until it is known who calls. `address` and `port` are of its other end, `network`
    is what limits count by; `until` is when it is let go (of the event loop's clock); `task` greets it, once
    its first record has come; a socket that is `handed_over` is another's to close."""

    sock: socket.socket
    address: str
    port: int
    network: str
    until: float
    wanted: int = HEADER.size  # bytes that have to come before there is anything to do
    task: asyncio.Task[None] | None = None
    handed_over: bool = False


class Strangers:
    """Those of one listener, `most` of them. `greet` takes over a socket whose first record has come, and
    calls `left` in the end; `told` is called for each that had to make room."""

    def __init__(
        self, greet: Callable[[Stranger], asyncio.Task[None]], told: Callable[[], None], *, most: int
    ) -> None:
        self._greet = greet
        self._told = told
        self._most = most
        self._all = ByAddress[Stranger]()
        self._silent: dict[int, Stranger] = {}  # whose first record has not come, by descriptor
        self._said = select.epoll()
        self._listeners: list[socket.socket] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._all)

    async def open(self, host: str, port: int) -> int:
        """Accept sockets; the port.

        Raises:
            OSError: the port is taken, or there is no such address.
        """
        loop = asyncio.get_running_loop()
        bound = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
        self._listeners = [one.dup() for one in bound.sockets]
        bound.close()
        for listener in self._listeners:
            listener.listen(BACKLOG)
            loop.add_reader(listener, self._accept, listener)
        loop.add_reader(self._said, self._look_at_some)
        self._sweep()
        return int(self._listeners[0].getsockname()[1])

    def close(self) -> None:
        """Accept nobody and let everybody go."""
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for stranger in self._all.all():
            self.end(stranger)
        if self._timer is not None:
            self._timer.cancel()
            asyncio.get_running_loop().remove_reader(self._said)
        self._said.close()

    def _sweep(self) -> None:
        """Let go whoever was silent for too long, and look again."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for stranger in tuple(self._silent.values()):  # the oldest first
            if stranger.until > now:
                break
            self.end(stranger)
        self._timer = loop.call_later(SWEEP_SECONDS, self._sweep)

    def _accept(self, listener: socket.socket) -> None:
        until = asyncio.get_running_loop().time() + HANDSHAKE_MS / 1000
        for _ in range(AT_ONCE):
            try:
                sock, (address, port, *_) = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                if problem.errno not in EXHAUSTED:
                    raise
                self._pause(listener, problem)
                return
            self._arrived(Stranger(sock, address, port, network_of(address), until))

    def _pause(self, listener: socket.socket, problem: OSError) -> None:
        """Accept nobody for a moment; strangers, who may hold what is short, make room."""
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "no socket can be accepted", "exception": problem})
        loop.remove_reader(listener)
        loop.call_later(AGAIN_SECONDS, self._resume, listener)
        if self._all:
            self._make_room()

    def _resume(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _arrived(self, stranger: Stranger) -> None:
        if len(self._all) >= self._most:
            self._make_room()
        stranger.sock.setblocking(False)
        self._all.add(stranger, stranger.network)
        _wait_for(stranger.sock, stranger.wanted)
        descriptor = stranger.sock.fileno()
        self._silent[descriptor] = stranger
        self._said.register(descriptor, select.EPOLLIN)

    def _make_room(self) -> None:
        """Let go the oldest stranger of the address with the most."""
        self._told()
        self.end(self._all.oldest_of_most())

    def _look_at_some(self) -> None:
        for descriptor, _ in self._said.poll(0, AT_ONCE):
            self._look(self._silent[descriptor])

    def _look(self, stranger: Stranger) -> None:
        """As much has come as was waited for, the header or the whole record; or the other end has closed."""
        try:
            seen = stranger.sock.recv(stranger.wanted, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            seen = b""
        if len(seen) < stranger.wanted:
            self.end(stranger)
        elif stranger.wanted > HEADER.size:
            self._stop_looking(stranger)
            _wait_for(stranger.sock, 1)
            stranger.task = self._greet(stranger)
        elif wanted := record_bytes(seen):
            stranger.wanted = wanted
            _wait_for(stranger.sock, wanted)
        else:
            self.end(stranger)

    def _stop_looking(self, stranger: Stranger) -> None:
        del self._silent[stranger.sock.fileno()]
        # Closing is not enough: a process that was forked in this moment holds the socket, too.
        self._said.unregister(stranger.sock.fileno())

    def end(self, stranger: Stranger) -> None:
        """Let it go. Whoever greets it is called off, and closes the socket."""
        self.left(stranger)
        if stranger.task is not None:
            stranger.task.cancel()
        else:
            self._stop_looking(stranger)
            stranger.sock.close()

    def left(self, stranger: Stranger) -> None:
        """It is a stranger no longer."""
        self._all.remove(stranger)


def record_bytes(header: bytes) -> int:
    """Length of the TLS record with this header; 0 if it does not begin a handshake."""
    kind, major, _, length = HEADER.unpack(header)
    good = kind == HANDSHAKE and major == MAJOR and 0 < length <= MOST_RECORD_BYTES
    return HEADER.size + length if good else 0


def network_of(address: str) -> str:
    """An address; of IPv6 the network, of which one machine may have every address."""
    if ":" not in address:
        return address
    try:
        known = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if known.ipv4_mapped is not None:
        return address
    return str(ipaddress.ip_network((known, 64), strict=False))


def _wait_for(sock: socket.socket, count: int) -> None:
    """Let the kernel wake nobody before so many bytes have come, or the other end has closed."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
