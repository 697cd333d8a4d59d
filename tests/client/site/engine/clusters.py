"""Dask clusters for tests: of processes behind TLS, as a hospital has one, or of threads in this process."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed
from cryptography.hazmat.primitives.asymmetric import ec
from distributed import Future
from distributed.security import Security

from eigenveil_client.connection.cluster import Cluster, ClusterAddress
from tests.client.site.support import PRIVATE, Authority


def certified(folder: Path) -> dict[str, Path]:
    folder.mkdir()
    authority, key = Authority(), ec.generate_private_key(ec.SECP256R1())
    written = {
        "scheduler_ca": authority.pem,
        "scheduler_cert": authority.member(key.public_key()),
        "scheduler_key": key.private_bytes(*PRIVATE),
    }
    for name, data in written.items():
        (folder / f"{name}.pem").write_bytes(data)
        (folder / f"{name}.pem").chmod(0o600)
    return {name: folder / f"{name}.pem" for name in written}


def secured(files: dict[str, Path]) -> Security:
    ca, cert, key = (str(files[name]) for name in ("scheduler_ca", "scheduler_cert", "scheduler_key"))
    roles = {f"tls_{role}_{what}": path for role in ("scheduler", "worker", "client")
             for what, path in (("cert", cert), ("key", key))}  # fmt: skip
    return Security(tls_ca_file=ca, require_encryption=True, **roles)


@contextmanager
def of_processes(workers: int, files: dict[str, Path]) -> Iterator[ClusterAddress]:
    started = distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, security=secured(files), protocol="tls://",
        dashboard_address="127.0.0.1:0", silence_logs=50,
    )  # fmt: skip
    with started as cluster:
        yield ClusterAddress(scheduler=cluster.scheduler_address, **files)


@contextmanager
def of_threads(files: dict[str, Path], port: int = 0) -> Iterator[ClusterAddress]:
    started = distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, security=secured(files), protocol="tls://",
        scheduler_port=port, dashboard_address="127.0.0.1:0", silence_logs=50,
    )  # fmt: skip
    with started as cluster:
        yield ClusterAddress(scheduler=cluster.scheduler_address, **files)


def free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        port: int = some.getsockname()[1]
        return port


def kill(cluster: Cluster, holding: Future[Any]) -> None:
    client = cluster._client
    (slots,) = client.who_has([holding]).values()
    for pid in client.run(os.getpid, workers=list(slots)).values():
        os.kill(pid, signal.SIGKILL)
