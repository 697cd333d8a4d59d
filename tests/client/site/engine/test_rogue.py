"""Who listens where a scheduler should is nobody's scheduler without the cluster's certificate."""

from __future__ import annotations

import pickle
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil_client.connection import cluster as connection
from eigenveil_client.connection.cluster import Cluster, ClusterAddress
from tests.client.site.engine.clusters import certified
from tests.support import refused


class Marker:
    """What a rogue scheduler would send: whoever unpickles it makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self._path,)


@contextmanager
def a_rogue(data: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A plain server at a port of this machine that says `data` to whoever comes; and the
    first words of each that has closed its connection."""
    heard: list[bytes] = []

    class Says(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(30)
            self.request.sendall(data)
            first = self.request.recv(2**16)
            with suppress(ConnectionResetError):
                while self.request.recv(2**16):
                    pass
            heard.append(first)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Says) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1], heard
        finally:
            server.shutdown()
            thread.join()


def test_a_rogue_scheduler_on_this_machine_is_refused_before_anything_is_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any local user may listen at a port; what such a one says in the clear is nobody's pickle."""
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 1.0)
    made = tmp_path / "made"
    header = b"\x80\x04" + pickle.dumps(Marker(made))
    frame = struct.pack("<QQ", 1, len(header)) + header
    with (
        a_rogue(struct.pack("<Q", len(frame)) + frame) as (port, heard),
        refused(Code.UNREACHABLE, "does not answer"),
    ):
        Cluster(ClusterAddress(scheduler=f"tls://127.0.0.1:{port}", **certified(tmp_path / "tls")))
    assert heard  # it was asked, and nobody keeps a connection to it
    assert all(one[:1] == b"\x16" for one in heard)  # a greeting of TLS, and nothing else
    assert not made.exists()


def test_plain_tcp_is_refused_with_the_page_that_makes_certificates() -> None:
    with refused(Code.BAD_CONFIG, "deploy/OPERATIONS.md"):
        ClusterAddress(scheduler="tcp://127.0.0.1:8786")
