"""The front door: TLS, and who may keep how many connections, before anything reaches gRPC.

gRPC for Python shows no connection to its server, so that none can be counted, closed or named. Here each is
accepted, its certificate verified, and its bytes passed on to gRPC through a socket that only this process
can reach. The name of that socket's other end is what gRPC tells of a call, so a call belongs to a connection
and to its certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import ssl
import time
import traceback
from asyncio import sslproto
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from eigenveil.errors import Code, EigenveilError, PeerError
from eigenveil.identity import Identity, Role
from eigenveil_common import log
from eigenveil_common.rpc import HANDSHAKE_MS
from eigenveil_server.front.admission import SHUT_SECONDS, Arrival, Connected, Guest
from eigenveil_server.front.connection import Connection, Upstream
from eigenveil_server.front.places import Places, Share
from eigenveil_server.front.requests import Requests
from eigenveil_server.front.strangers import Stranger, Strangers
from eigenveil_server.front.turns import Turns

# asyncio reads a TLS connection in pieces of this size and has a buffer for one. A handshake needs no more:
# its largest message, a certificate, has 1 KiB. Larger ones are for whoever was let in.
sslproto.SSLProtocol.max_size = 4 * 1024
OTHERS_READ_BYTES = 32 * 1024
# A site's large answers come in fewer pieces, each of which costs turns of two loops.
SITE_READ_BYTES = 128 * 1024
READ_BYTES = 256 * 1024  # for what was decrypted, once for all connections of a door
SITE_WAY_BYTES = 2**20  # on their way to gRPC
CALL_SECONDS = 15.0  # until the first call that was admitted
LEAVE_SECONDS = 2.0  # in which whoever may not stay is told why, if they ask
BYE_SECONDS = 2.0
WORDS = {
    "resets": "too many calls were taken back before they were answered",
    "requests": "too many bytes of requests were sent before they were answered",
    "no-call": "no call was admitted in time",
    "shut-out": "this certificate is refused",
    "streams": "too many calls are open at once",
    "unread": "an answer was not read in time",
    "unfinished": "a request was not sent in time",
    "misframed": "a frame came that no client may send",
}
Name = Callable[[bytes], Identity | None]  # of a certificate
Closed = Callable[[str, str], None]  # why, and whose


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What a door needs: TLS as it is now, how to read a certificate, whether a caller may stay (it raises
    PeerError if not), who counts what was closed, and what share of everything it has."""

    tls: Callable[[], ssl.SSLContext]
    name: Name
    stays: Callable[[Arrival], object]
    closed: Closed
    share: Share


class Door:
    """One listener. gRPC's socket is `folder`/grpc, and each connection to that has a number for a name."""

    def __init__(self, folder: Path, house: House) -> None:
        shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
        folder.mkdir(mode=0o700)
        self._opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._folder = folder
        self._short = f"/proc/self/fd/{self._opened}"  # a socket's name has at most 107 bytes
        self._house = house
        self._places = Places(self._close, house.share)
        told = partial(self._tell, "handshakes", None)
        self._strangers = Strangers(self._greeting, told, most=house.share.strangers)
        self._connections: dict[str, Connection] = {}
        self._greetings: set[asyncio.Task[None]] = set()
        self._sockets: set[Connection] = set()
        self._empty = asyncio.Event()
        self._turns = Turns(self._too_slow)
        self._number = 0
        self.requests = Requests(self._overfull)
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
        return await self._strangers.open(host, port)

    async def close(self) -> None:
        """Accept nobody and let everybody go."""
        self._strangers.close()
        if not self._sockets:
            self._empty.set()
        for task in self._greetings:
            task.cancel()
        await asyncio.gather(*self._greetings, return_exceptions=True)
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

    def _greeting(self, stranger: Stranger) -> asyncio.Task[None]:
        """The first record of a stranger has come: a handshake when its turn has come, then a place."""
        connection = Connection(self)
        task = asyncio.create_task(self._greet(stranger, connection))
        self._greetings.add(task)
        task.add_done_callback(partial(self._greeted, stranger, connection))
        return task

    async def _greet(self, stranger: Stranger, connection: Connection) -> None:
        try:
            await self._turns.wait(stranger, stranger.network)
            connection.outer = await self._shake_hands(stranger, connection)
            if connection.ended:
                return
            arrival = self._arrival(connection.outer, stranger)
            if why := self._places.refusal(arrival.guest, self._connections.values()):
                # A stranger for a while: whoever is let go comes again, and a handshake costs more.
                self._tell(why, arrival)
                connection.stop_reading()
                await asyncio.sleep(SHUT_SECONDS)
            else:
                await self._let_in(stranger, connection, arrival)
        except (OSError, EigenveilError):  # TLS has told the other end; of our own certificate the guard does
            return

    def _greeted(self, stranger: Stranger, connection: Connection, task: asyncio.Task[None]) -> None:
        """It was let in, or is let go: also one whose task was called off before it began."""
        self._greetings.discard(task)
        self._strangers.left(stranger)
        self._turns.leave(stranger, stranger.network)
        if connection.arrival is not None:
            return
        if connection in self._sockets:
            connection.end()
            self.vanished(connection)  # asyncio tells nobody of a socket whose handshake had no end
        else:
            stranger.sock.close()

    def _too_slow(self, stranger: Stranger) -> None:
        self._tell("handshakes", None)
        self._strangers.end(stranger)

    def arrived(self, connection: Connection) -> None:
        self._sockets.add(connection)
        self._empty.clear()

    async def _shake_hands(self, stranger: Stranger, connection: Connection) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        plain, _ = await loop.connect_accepted_socket(lambda: connection, stranger.sock)
        try:
            tls = await loop.start_tls(
                plain, connection, self._house.tls(), server_side=True,
                ssl_handshake_timeout=HANDSHAKE_MS / 1000, ssl_shutdown_timeout=BYE_SECONDS,
            )  # fmt: skip
        except BaseException as problem:
            # asyncio's frames and this error hold each other, and with them all of TLS: not until the next
            # collection of garbage, which hundreds of failed handshakes may precede.
            traceback.clear_frames(problem.__traceback__)
            raise
        if tls is None:
            raise ConnectionResetError("closed during the handshake")
        return tls

    def _arrival(self, tls: asyncio.Transport, stranger: Stranger) -> Arrival:
        channel = cast(ssl.SSLObject, tls.get_extra_info("ssl_object"))
        der = channel.getpeercert(binary_form=True)
        certificate = ssl.DER_cert_to_PEM_cert(der).encode() if der else b""
        who = self._house.name(certificate) if certificate else None
        guest = self._places.guest(who, stranger.network)
        where, port = stranger.address, stranger.port
        peer = f"[{where}]:{port}" if ":" in where else f"{where}:{port}"
        return Arrival(peer=peer, certificate=certificate, tls=channel.version() or "", guest=guest)

    async def _let_in(self, stranger: Stranger, connection: Connection, arrival: Arrival) -> None:
        """Connect to gRPC, under a name of its own."""
        self._number += 1
        name = str(self._number)
        plain = socket.socket(socket.AF_UNIX)
        try:
            plain.setblocking(False)
            if site := arrival.guest.role is Role.SITE:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SITE_WAY_BYTES)
            plain.bind(f"{self._short}/{name}")
            plain.connect(f"{self._short}/grpc")
            os.unlink(f"{self._short}/{name}")
        except OSError:
            plain.close()
            raise
        self._strangers.left(stranger)
        self._turns.passed(stranger, stranger.network)
        tls = connection.outer._ssl_protocol  # type: ignore[attr-defined]
        tls.max_size = SITE_READ_BYTES if site else OTHERS_READ_BYTES
        self._connections[name] = connection
        connection.name, connection.arrival = name, arrival
        arrival.guest.open.add(connection)
        loop = asyncio.get_running_loop()
        inner, _ = await loop.create_unix_connection(lambda: Upstream(connection), sock=plain)
        if connection.ended:
            inner.close()
        else:
            connection.begin(inner)

    # ------------------------------------------------------------ going

    def left(self, connection: Connection) -> None:
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
        self._shut(connection.arrival.guest, "resets")

    def _overfull(self, guest: Guest) -> None:
        self._shut(guest, "requests")

    def _shut(self, guest: Guest, why: str) -> None:
        """Serve a guest no more for a while."""
        guest.shut_until = time.monotonic() + SHUT_SECONDS
        for one in tuple(guest.open):
            self._close(one, why)

    def misframed(self, connection: Connection) -> None:
        self._close(connection, "misframed")

    def may_open(self, connection: Connection) -> bool:
        return connection.arrival is not None and self._places.may_open(connection.arrival.guest)

    def opened(self, connection: Connection) -> None:
        if connection.arrival is not None:
            self._places.opened(connection.arrival.guest)

    def closed(self, connection: Connection, count: int) -> None:
        if connection.arrival is not None:
            self._places.closed(connection.arrival.guest, count)

    def sweep(self) -> None:
        """Let go whoever has made no call that was admitted, leaves a call waiting, or may not stay."""
        now = time.monotonic()
        verdicts: dict[bytes, bool] = {}  # whatever shuts out one connection of a certificate shuts out all
        for connection in tuple(self._connections.values()):
            arrival = connection.arrival
            if why := connection.overdue():
                self._close(connection, why)
            if arrival is None or arrival.calls or connection.ended:
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
