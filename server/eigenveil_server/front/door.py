"""The front door: TLS, and who may keep how many connections, before anything reaches gRPC.

gRPC for Python shows no connection to its server, so that none can be counted, closed or named. Here each is
accepted, its certificate verified, and its bytes passed on to gRPC through a socket that only this process
can reach. The name of that socket's other end is what gRPC tells of a call, so a call belongs to a connection
and to its certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import shutil
import socket
import ssl
import time
from asyncio import sslproto
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from eigenveil.errors import Code, EigenveilError, PeerError
from eigenveil.identity import Identity, Role
from eigenveil_common import log
from eigenveil_common.rpc import HANDSHAKE_MS
from eigenveil_server.front.admission import SHUT_SECONDS, Arrival, Connected
from eigenveil_server.front.connection import Connection, Upstream
from eigenveil_server.front.places import Places
from eigenveil_server.front.turns import Turns

# asyncio has a buffer of this size for each TLS connection, 256 KiB unless told otherwise. What else is held
# of a handshake is 53 KiB: 21 MiB for all that may be in theirs.
sslproto.SSLProtocol.max_size = 32 * 1024
# Of a site that was let in: its large answers come in fewer pieces, each of which costs turns of two loops.
SITE_READ_BYTES = 128 * 1024
READ_BYTES = 256 * 1024  # for what was decrypted, once for all connections of a door
SITE_WAY_BYTES = 2**20  # on their way to gRPC
MOST_STRANGERS = 1024  # before or in their handshake: after a restart every site comes back at once
MOST_HANDSHAKES = 256  # of these, in it
CALL_SECONDS = 15.0  # until the first call that was admitted
LEAVE_SECONDS = 2.0  # in which whoever may not stay is told why, if they ask
BYE_SECONDS = 2.0
BACKLOG = 256
WORDS = {
    "resets": "too many calls were taken back before they were answered",
    "no-call": "no call was admitted in time",
    "shut-out": "this certificate is refused",
}
Name = Callable[[bytes], Identity | None]  # of a certificate
Closed = Callable[[str, str], None]  # why, and whose


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What a door needs: TLS as it is now, how to read a certificate, whether a caller may stay (it raises
    PeerError if not), and who counts what was closed."""

    tls: Callable[[], ssl.SSLContext]
    name: Name
    stays: Callable[[Arrival], object]
    closed: Closed


class Door:
    """One listener. gRPC's socket is `folder`/grpc, and each connection to that has a number for a name."""

    def __init__(self, folder: Path, house: House) -> None:
        shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
        folder.mkdir(mode=0o700)
        self._opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._folder = folder
        self._short = f"/proc/self/fd/{self._opened}"  # a socket's name has at most 107 bytes
        self._house = house
        self._places = Places(self._close)
        self._strangers: dict[Connection, str] = {}  # the oldest first; from which address
        self._connections: dict[str, Connection] = {}
        self._greeting: set[asyncio.Task[None]] = set()
        self._sockets: set[Connection] = set()
        self._empty = asyncio.Event()
        self._turns = Turns()
        self._hands = asyncio.Semaphore(MOST_HANDSHAKES)
        self._number = 0
        self.room = memoryview(bytearray(READ_BYTES))

    @property
    def inside(self) -> str:
        """Where gRPC listens."""
        return f"unix:{self._short}/grpc"

    async def open(self, host: str, port: int) -> int:
        """Accept connections; the port.

        Raises:
            OSError: the port is taken, or there is no such address.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), host, port, backlog=BACKLOG)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Accept nobody and let everybody go."""
        self._server.close()
        if not self._sockets:
            self._empty.set()
        for task in self._greeting:
            task.cancel()
        await asyncio.gather(*self._greeting, return_exceptions=True)
        for connection in tuple(self._strangers):
            connection.end()
            self.vanished(connection)
        for connection in tuple(self._connections.values()):
            connection.end()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), BYE_SECONDS)
        os.close(self._opened)
        shutil.rmtree(self._folder, ignore_errors=True)

    def of(self, peer: str) -> Arrival:
        """The connection that gRPC calls `peer`.

        Raises:
            PeerError: it came in by no door.
        """
        connection = self._connections.get(peer.rpartition("/")[2])
        if connection is None or connection.arrival is None:
            raise PeerError(Code.IDENTITY, "this connection has ended, or never came in by the door")
        return connection.arrival

    def holds(self, peer: str) -> bool:
        """Whether a caller's connection from the address `peer` is open."""
        arrivals = (one.arrival for one in self._connections.values())
        return any(arrival is not None and arrival.peer == peer for arrival in arrivals)

    # ------------------------------------------------------------ coming

    def arrived(self, connection: Connection) -> None:
        """A stranger: whoever has the most of them makes room."""
        self._sockets.add(connection)
        self._empty.clear()
        where, *_ = connection.outer.get_extra_info("peername") or ("nowhere",)  # gone already
        address = _network(str(where))
        self._strangers[connection] = address
        if len(self._strangers) > MOST_STRANGERS:
            ((busiest, _),) = Counter(self._strangers.values()).most_common(1)
            self._close(next(one for one, where in self._strangers.items() if where == busiest), "handshakes")
        if connection in self._strangers:
            connection.outer.pause_reading()  # TLS reads from the first byte on
            task = asyncio.create_task(self._greet(connection, address))
            self._greeting.add(task)
            task.add_done_callback(self._greeting.discard)

    async def _greet(self, connection: Connection, address: str) -> None:
        """The handshake when its turn has come, then a place."""
        where, port, *_ = connection.outer.get_extra_info("peername") or ("nowhere", 0)
        try:
            await self._turns.wait(connection, address)
            async with self._hands:  # asyncio accepts many at once, before it lets go those who made room
                tls = None if connection.ended else await self._shake_hands(connection)
            if tls is None or connection.ended:
                connection.end()
                self.vanished(connection)  # asyncio tells nobody of a socket whose handshake had no end
                return
            connection.outer = tls
            arrival = self._arrival(tls, str(where), port)
            if why := self._places.refusal(arrival.guest, self._connections.values()):
                self._keep_waiting(connection, why, arrival)
            else:
                await self._let_in(connection, arrival)
        except (OSError, EigenveilError):  # TLS has told the other end; of our own certificate the guard does
            connection.end()
            # `start_tls` tells nobody of a socket that was closed before or meanwhile.
            self.vanished(connection)

    async def _shake_hands(self, connection: Connection) -> asyncio.Transport | None:
        return await asyncio.get_running_loop().start_tls(
            connection.outer, connection, self._house.tls(), server_side=True,
            ssl_handshake_timeout=HANDSHAKE_MS / 1000, ssl_shutdown_timeout=BYE_SECONDS,
        )  # fmt: skip

    def _arrival(self, tls: asyncio.Transport, where: str, port: int) -> Arrival:
        channel = cast(ssl.SSLObject, tls.get_extra_info("ssl_object"))
        der = channel.getpeercert(binary_form=True)
        certificate = ssl.DER_cert_to_PEM_cert(der).encode() if der else b""
        who = self._house.name(certificate) if certificate else None
        guest = self._places.guest(who, _network(where))
        peer = f"[{where}]:{port}" if ":" in where else f"{where}:{port}"
        return Arrival(peer=peer, certificate=certificate, tls=channel.version() or "", guest=guest)

    async def _let_in(self, connection: Connection, arrival: Arrival) -> None:
        """Connect to gRPC, under a name of its own."""
        self._number += 1
        name = str(self._number)
        plain = socket.socket(socket.AF_UNIX)
        try:
            plain.setblocking(False)
            if arrival.guest.role is Role.SITE:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SITE_WAY_BYTES)
                connection.outer._ssl_protocol.max_size = SITE_READ_BYTES  # type: ignore[attr-defined]
            plain.bind(f"{self._short}/{name}")
            plain.connect(f"{self._short}/grpc")
            os.unlink(f"{self._short}/{name}")
        except OSError:
            plain.close()
            raise
        del self._strangers[connection]
        self._connections[name] = connection
        connection.name, connection.arrival = name, arrival
        arrival.guest.open.add(connection)
        loop = asyncio.get_running_loop()
        inner, _ = await loop.create_unix_connection(lambda: Upstream(connection), sock=plain)
        if connection.ended:
            inner.close()
        else:
            connection.begin(inner)

    def _keep_waiting(self, connection: Connection, why: str, arrival: Arrival) -> None:
        """Among the strangers for a while: whoever is let go comes again, and a handshake costs more."""
        self._tell(why, arrival)
        connection.stop_reading()
        asyncio.get_running_loop().call_later(SHUT_SECONDS, connection.end)

    # ------------------------------------------------------------ going

    def left(self, connection: Connection) -> None:
        if (address := self._strangers.pop(connection, None)) is not None:
            self._turns.leave(connection, address)
        if connection.arrival is not None:
            del self._connections[connection.name]
            connection.arrival.guest.open.discard(connection)

    def vanished(self, connection: Connection) -> None:
        self._sockets.discard(connection)
        if not self._sockets:
            self._empty.set()

    def misused(self, connection: Connection) -> None:
        """Cut off a guest whose calls cost others theirs."""
        if connection.arrival is None:
            return
        guest = connection.arrival.guest
        guest.shut_until = time.monotonic() + SHUT_SECONDS
        for one in tuple(guest.open):
            self._close(one, "resets")

    def sweep(self) -> None:
        """Let go whoever has made no call that was admitted, or may not stay."""
        now = time.monotonic()
        verdicts: dict[bytes, bool] = {}  # whatever shuts out one connection of a certificate shuts out all
        for connection in tuple(self._connections.values()):
            arrival = connection.arrival
            if arrival is None or arrival.calls:
                continue
            if not arrival.admitted and now - arrival.began > CALL_SECONDS:
                self._close(connection, "no-call")
            elif now - arrival.last > LEAVE_SECONDS:
                shown = arrival.certificate
                if shown not in verdicts:
                    verdicts[shown] = self._shut_out(arrival)
                if verdicts[shown]:
                    self._close(connection, "shut-out")
        self._places.forget()
        self._turns.forget()

    def _shut_out(self, arrival: Arrival) -> bool:
        try:
            self._house.stays(arrival)
        except PeerError:
            return True
        return False

    def _close(self, connection: Connected, why: str) -> None:
        self._tell(why, connection.arrival)
        connection.end(WORDS.get(why, why))

    def _tell(self, why: str, arrival: Arrival | None) -> None:
        """Count it, and log it once a minute for each guest and reason."""
        known = arrival is not None and arrival.guest.role is not None
        self._house.closed(why, arrival.guest.name if arrival is not None and known else "")
        if arrival is not None and arrival.guest.tells(why):
            log.event(
                "connection-closed", logging.WARNING, why=why, peer=arrival.guest.name, address=arrival.peer
            )


def _network(where: str) -> str:
    """An address; of IPv6 the network, of which one machine may have every address."""
    try:
        address = ipaddress.ip_address(where.partition("%")[0])
    except ValueError:
        return where
    if address.version == 4 or address.ipv4_mapped is not None:
        return where
    return str(ipaddress.ip_network((address, 64), strict=False))
