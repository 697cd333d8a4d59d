"""Dask clusters for tests, behind TLS: of a hospital's commands, of processes, or of threads here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import distributed
from cryptography.hazmat.primitives.asymmetric import ec
from distributed import Future
from distributed.security import Security

from eigenveil_client.connection.cluster import Cluster, ClusterAddress
from tests.client.site.support import PRIVATE, Authority

ROOT = Path(__file__).resolve().parents[4]  # whose packages the workers import


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


@dataclass(slots=True)
class ServiceCluster:
    """Cluster of the commands in deploy/OPERATIONS.md, each a process."""

    folder: Path
    address: ClusterAddress
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, workers: int) -> None:
        """Start a scheduler at the address, and workers. Returns once all have joined."""
        where, (ca, cert, key) = self.address.scheduler, self.address.files
        tls = ["--tls-ca-file", str(ca), "--tls-cert", str(cert), "--tls-key", str(key), "--no-dashboard"]
        self._run("scheduler", "--host", "tls://127.0.0.1", "--port", where.rpartition(":")[2], *tls)
        for _ in range(workers):
            self._run("worker", where, "--nthreads", "1", "--local-directory", str(self.folder), *tls)
        cluster = Cluster(self.address)
        while cluster.workers().workers < workers:
            time.sleep(0.1)
        cluster.close()

    def _run(self, what: str, *options: str) -> None:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *options]
        with (self.folder / f"{what}.log").open("ab") as log:
            self._running.append(subprocess.Popen(command, stderr=log, cwd=ROOT))

    def kill_scheduler(self) -> None:
        """End the scheduler by SIGKILL, and wait for its workers, which end without it."""
        scheduler, *workers = self._running
        scheduler.kill()
        for one in (scheduler, *workers):
            one.wait()
        self._running.clear()

    def stop(self) -> None:
        for one in reversed(self._running):
            one.terminate()
            one.wait()


@contextmanager
def of_services(folder: Path, workers: int) -> Iterator[ServiceCluster]:
    address = ClusterAddress(scheduler=f"tls://127.0.0.1:{free_port()}", **certified(folder / "tls"))
    services = ServiceCluster(folder, address)
    try:
        services.start(workers)
        yield services
    finally:
        services.stop()


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
