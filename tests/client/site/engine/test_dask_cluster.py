"""What a cluster answers is what one machine does, to the last bit, whoever of it dies meanwhile."""

from __future__ import annotations

import pickle
import struct
import sys
from pathlib import Path

import pytest

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil_client.connection import cluster as connection
from eigenveil_client.connection.cluster import Cluster, ClusterAddress
from tests.client.site.engine.clusters import certified
from tests.client.site.engine.test_dask import NOBODY, Marker, a_rogue
from tests.client.site.support import Patch
from tests.support import refused


def test_workers_of_another_version_are_told_from_ours() -> None:
    ours = connection.versions()
    connection._check_versions({"one": ours, "other": ours})
    with pytest.raises(PeerError, match=f"{ours}.0"):
        connection._check_versions({"one": ours, "other": f"{ours}.0"})


def test_a_missing_library_is_named_by_its_extra(monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(RequestError, match=r"eigenveil\[dask\]"):
        Cluster(NOBODY)


def test_rogue_scheduler_is_refused_before_unpickling(tmp_path: Path, monkeypatch: Patch) -> None:
    """Any local user may listen at a port; what such a one says in the clear is nobody's pickle."""
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 1.0)
    made = tmp_path / "made"
    header = b"\x80\x04" + pickle.dumps(Marker(made))
    frame = struct.pack("<QQ", 1, len(header)) + header
    with (
        a_rogue(struct.pack("<Q", len(frame)) + frame) as (port, received),
        refused(Code.UNREACHABLE, "does not answer"),
    ):
        Cluster(ClusterAddress(scheduler=f"tls://127.0.0.1:{port}", **certified(tmp_path / "tls")))
    assert received  # it was asked, and nobody keeps a connection to it
    assert all(one[:1] == b"\x16" for one in received)  # a greeting of TLS, and nothing else
    assert not made.exists()
