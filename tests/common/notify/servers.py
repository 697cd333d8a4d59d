"""A mail server and a web server on real sockets, with TLS by their own authority."""

from __future__ import annotations

import base64
import http.server
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from eigenveil.identity import Identity, Role
from eigenveil_common.notify.config import Tls
from eigenveil_server.pki.authority import Authority, key_to_pem, new_key, pem


@dataclass(slots=True, kw_only=True)
class Seen:
    """Messages received by a server, and the replies that it gives before it accepts."""

    context: ssl.SSLContext
    mails: list[bytes] = field(default_factory=list)
    to: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    posts: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    replies: list[int] = field(default_factory=list)
    puts_off: str = ""  # whose address holds this is told to come again
    port: int = 0

    def reply(self, content: int) -> int:
        return self.replies.pop(0) if self.replies else content

    def secured(self, plain: socket.socket) -> ssl.SSLSocket:
        """The connection in TLS; closed if the client does not like it."""
        found = self.context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        try:
            found.do_handshake()
        except OSError:
            found.close()
            raise
        return found


def authority(folder: Path, *hosts: str) -> tuple[Path, ssl.SSLContext]:
    """The file of an authority (PEM), and TLS for a server of these names that it vouches for."""
    now, key = datetime.now(UTC), new_key()
    root = Authority.create("test", now)
    who = Identity(federation="test", role=Role.COORDINATOR, name="server")
    leaf = root.issue(who, key.public_key(), now=now, days=1, hosts=hosts)
    (folder / "server.pem").write_bytes(key_to_pem(key) + pem(leaf))
    (folder / "root.pem").write_bytes(pem(root.certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return folder / "root.pem", context


def mail_handler(seen: Seen, tls: Tls) -> type[socketserver.BaseRequestHandler]:
    class Session(socketserver.BaseRequestHandler):
        """One session of RFC 5321, with STARTTLS (RFC 3207) and AUTH PLAIN (RFC 4954)."""

        def handle(self) -> None:
            self.secure = tls is Tls.TLS
            self.connection = seen.secured(self.request) if self.secure else self.request
            self.file = self.connection.makefile("rb")
            self.state("220 ready")
            verb = ""
            while verb != "quit" and (line := self.file.readline()):
                verb, _, rest = line.decode().strip().partition(" ")
                seen.commands.append(verb := verb.lower())
                getattr(self, f"do_{verb}", self.do_nothing)(rest)

        def finish(self) -> None:
            self.file.close()
            self.connection.close()

        def state(self, line: str) -> None:
            self.connection.sendall(f"{line}\r\n".encode())

        def do_quit(self, rest: str) -> None:
            self.state("221 bye")

        def do_nothing(self, rest: str) -> None:
            self.state("250 fine")

        def do_ehlo(self, rest: str) -> None:
            offered = ["STARTTLS"] if tls is Tls.STARTTLS and not self.secure else []
            offered += ["AUTH PLAIN"] if self.secure else []
            for one in ("here", *offered):
                self.state(f"250-{one}")
            self.state("250 8BITMIME")

        def do_starttls(self, rest: str) -> None:
            self.state("220 go on")
            self.file.close()
            self.connection = seen.secured(self.connection)
            self.file, self.secure = self.connection.makefile("rb"), True

        def do_auth(self, rest: str) -> None:
            seen.logins.append(base64.b64decode(rest.split()[1]).decode())
            self.state("235 come in")

        def do_rcpt(self, rest: str) -> None:
            put_off = seen.puts_off and seen.puts_off in rest
            code = 450 if put_off else seen.reply(250)
            seen.to += [rest] if code == 250 else []
            self.state(f"{code} said of the recipient")

        def do_data(self, rest: str) -> None:
            self.state("354 go on")
            lines = iter(self.file.readline, b".\r\n")
            seen.mails.append(b"".join(lines))
            self.state("250 taken")

    return Session


def web_handler(seen: Seen) -> type[socketserver.BaseRequestHandler]:
    class Session(http.server.BaseHTTPRequestHandler):
        def setup(self) -> None:
            self.request = seen.secured(self.request)
            super().setup()

        def finish(self) -> None:
            super().finish()
            self.request.close()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.posts.append((self.path, dict(self.headers), body))
            self.send_response(seen.reply(204))
            self.send_header("Location", self.path)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    return Session


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that does not trust us goes away."""


@contextmanager
def serving(handler: type[socketserver.BaseRequestHandler], seen: Seen) -> Iterator[Seen]:
    """`handler` on a port of 127.0.0.1, which `seen` tells."""
    with _Server(("127.0.0.1", 0), handler) as server:
        seen.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield seen
        finally:
            server.shutdown()
            thread.join()
