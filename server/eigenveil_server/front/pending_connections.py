"""Pending connections by address: sockets whose TLS handshake has not begun, for a descriptor and 2 KiB each.
No TLS object is made before the first record, with the ClientHello, has come completely. Until then its bytes
wait in the kernel (SO_RCVLOWAT), and only its header is read: type and length."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import select
import socket
import struct
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from eigenveil_common.rpc import HANDSHAKE_MS
from eigenveil_server.front.known_networks import KnownNetworks

Connection = TypeVar("Connection")


class ConnectionsByAddress(Generic[Connection]):
    """Set of connections by address. All methods take constant time. A new connection beyond a limit closes
    the oldest one of the busiest address. A linear search for it would cost most under attack, when
    connections come fastest."""

    def __init__(self) -> None:
        self._by_address: dict[str, dict[Connection, None]] = {}  # the oldest first
        self._addresses_by_count = defaultdict[int, dict[str, None]](dict)
        self._address: dict[Connection, str] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._address)

    def all(self) -> tuple[Connection, ...]:
        """Return all connections, the oldest first."""
        return tuple(self._address)

    def add(self, connection: Connection, address: str) -> None:
        group = self._by_address.setdefault(address, {})
        group[connection] = None
        self._address[connection] = address
        self._recount(address, len(group) - 1, len(group))
        self._most = max(self._most, len(group))

    def remove(self, connection: Connection) -> None:
        """Remove a connection; an unknown one is ignored."""
        address = self._address.pop(connection, None)
        if address is None:
            return
        group = self._by_address[address]
        del group[connection]
        self._recount(address, len(group) + 1, len(group))
        if self._most not in self._addresses_by_count:
            self._most -= 1
        if not group:
            del self._by_address[address]

    def oldest_of_busiest_address(self) -> Connection:
        """Return the oldest connection of the address with the most. The set must not be empty."""
        address = next(iter(self._addresses_by_count[self._most]))
        return next(iter(self._by_address[address]))

    def _recount(self, address: str, before: int, after: int) -> None:
        if before:
            del self._addresses_by_count[before][address]
            if not self._addresses_by_count[before]:
                del self._addresses_by_count[before]
        if after:
            self._addresses_by_count[after][address] = None


MAX_PENDING_CONNECTIONS = 1024  # before or in their handshake; after a restart all sites reconnect at once
BACKLOG = 4096  # in the kernel; beyond it a client retries after a second
AT_ONCE = 64  # accepted, and checked, in one pass of the event loop
SWEEP_SECONDS = 1.0  # between two checks for connections that have timed out
AGAIN_SECONDS = 1.0  # after descriptors or memory were exhausted
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
HEADER = struct.Struct("!BBBH")  # of a TLS record: kind, version, and the bytes that follow (RFC 8446, 5.1)
HANDSHAKE, MAJOR, MOST_RECORD_BYTES = 22, 3, 2**14


@dataclass(slots=True, eq=False)
class PendingConnection:
    """Accepted socket whose caller is not known yet. `address` and `port` are of its other end; limits count
    by `network`. It times out at `until` (clock of the event loop). `task` runs the handshake once the first
    record has come. A socket that is `handed_over` is closed by its new owner."""

    sock: socket.socket
    address: str
    port: int
    network: str
    until: float
    wanted: int = HEADER.size  # bytes that must have come before the next step
    task: asyncio.Task[None] | None = None
    handed_over: bool = False


class PendingConnections:
    """Pending connections of one listener, at most `most`. `greet` takes over a socket whose first record has
    come, and calls `left` at its end. `on_dropped` is called for each closed beyond the limit. `known`
    networks and strangers have half of the places each, and what the others leave. So strangers, who may have
    any number of addresses, close no connection of a network where a member is. Under attack thousands come
    and go every second, and honest callers wait for the work that each costs. So they share one epoll object
    without a callback for each, and one timer closes those that time out."""

    def __init__(
        self,
        greet: Callable[[PendingConnection], asyncio.Task[None]],
        on_dropped: Callable[[], None],
        known: KnownNetworks,
        *,
        most: int,
    ) -> None:
        self._greet = greet
        self._on_dropped = on_dropped
        self._networks = known
        self._most = most
        self._strangers = ConnectionsByAddress[PendingConnection]()
        self._known = ConnectionsByAddress[PendingConnection]()
        self._by_descriptor: dict[int, PendingConnection] = {}  # those without a first record, by descriptor
        self._epoll = select.epoll()
        self._listeners: list[socket.socket] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._strangers) + len(self._known)

    def left(self, pending: PendingConnection) -> None:
        """Forget a connection that is no longer pending; an unknown one is ignored."""
        self._strangers.remove(pending)
        self._known.remove(pending)

    async def open(self, host: str, port: int) -> int:
        """Accept sockets. Return the port. Raises OSError: the port is taken, or there is no such address."""
        loop = asyncio.get_running_loop()
        bound = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
        self._listeners = [one.dup() for one in bound.sockets]
        bound.close()
        for listener in self._listeners:
            listener.listen(BACKLOG)
            loop.add_reader(listener, self._accept, listener)
        loop.add_reader(self._epoll, self._check_ready)
        self._sweep()
        return int(self._listeners[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening and close all pending connections."""
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for pending in (*self._strangers.all(), *self._known.all()):
            self.end(pending)
        if self._timer is not None:
            self._timer.cancel()
            asyncio.get_running_loop().remove_reader(self._epoll)
        self._epoll.close()

    def _sweep(self) -> None:
        """Close connections that have timed out, and schedule the next check."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for pending in tuple(self._by_descriptor.values()):  # the oldest first
            if pending.until > now:
                break
            self.end(pending)
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
            self._arrived(PendingConnection(sock, address, port, network_of(address), until))

    def _pause(self, listener: socket.socket, problem: OSError) -> None:
        """Pause accepting for a moment, and close one pending connection to free its descriptor."""
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "no socket can be accepted", "exception": problem})
        loop.remove_reader(listener)
        loop.call_later(AGAIN_SECONDS, self._resume, listener)
        if len(self):
            self._make_room()

    def _resume(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _arrived(self, pending: PendingConnection) -> None:
        pending.sock.setblocking(False)
        group = self._known if pending.network in self._networks else self._strangers
        group.add(pending, pending.network)
        _set_low_watermark(pending.sock, pending.wanted)
        descriptor = pending.sock.fileno()
        self._by_descriptor[descriptor] = pending
        self._epoll.register(descriptor, select.EPOLLIN)
        if len(self) > self._most:
            self._make_room()

    def _make_room(self) -> None:
        """Close the oldest pending connection of the busiest address, of those that have more than half of
        the places."""
        self._on_dropped()
        known_have_more = len(self._known) > self._most // 2 or not len(self._strangers)
        group = self._known if known_have_more else self._strangers
        self.end(group.oldest_of_busiest_address())

    def _check_ready(self) -> None:
        for descriptor, _ in self._epoll.poll(0, AT_ONCE):
            self._check_record(self._by_descriptor[descriptor])

    def _check_record(self, pending: PendingConnection) -> None:
        """Handle a socket that has the awaited bytes (header or whole record), or whose peer has closed."""
        try:
            seen = pending.sock.recv(pending.wanted, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            seen = b""
        if len(seen) < pending.wanted:
            self.end(pending)
        elif pending.wanted > HEADER.size:
            self._unregister(pending)
            _set_low_watermark(pending.sock, 1)
            pending.task = self._greet(pending)
        elif wanted := record_bytes(seen):
            pending.wanted = wanted
            _set_low_watermark(pending.sock, wanted)
        else:
            self.end(pending)

    def _unregister(self, pending: PendingConnection) -> None:
        del self._by_descriptor[pending.sock.fileno()]
        # Closing is not enough: a process forked in this moment also has the socket open.
        self._epoll.unregister(pending.sock.fileno())

    def end(self, pending: PendingConnection) -> None:
        """Close a pending connection. A running handshake is cancelled, and closes the socket itself."""
        self.left(pending)
        if pending.task is not None:
            pending.task.cancel()
        else:
            self._unregister(pending)
            pending.sock.close()


def record_bytes(header: bytes) -> int:
    """Return the length of the TLS record with this header; 0 if the record is not a handshake."""
    kind, major, _, length = HEADER.unpack(header)
    good = kind == HANDSHAKE and major == MAJOR and 0 < length <= MOST_RECORD_BYTES
    return HEADER.size + length if good else 0


def network_of(address: str) -> str:
    """Return the address for limits: of IPv6 its /64 network, as one machine may have all of it."""
    if ":" not in address:
        return address
    try:
        known = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if known.ipv4_mapped is not None:
        return address
    return str(ipaddress.ip_network((known, 64), strict=False))


def _set_low_watermark(sock: socket.socket, count: int) -> None:
    """Make the kernel report a socket only once `count` bytes have come or the other end has closed."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
