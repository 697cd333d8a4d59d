"""A Dask cluster of one's own: where its scheduler is, and a connection that says what is wrong with it.

Whoever reaches a scheduler runs code on its workers, and whoever poses as one runs code at its clients, which
unpickle what it says: so the way there is TLS with certificates of the cluster's own authority at both ends,
on one machine too, where any of its users may listen at a port. What workers run are functions of this
package on plain values.
"""

from __future__ import annotations

import logging
import platform
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from eigenveil import __version__
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil_common.command import needing
from eigenveil_common.config import need
from eigenveil_common.files import read, read_secret
from eigenveil_common.log import places

if TYPE_CHECKING:
    from ssl import SSLContext

    from distributed import Client, Future

GREETING_SECONDS = 10.0
PROGRESS_SECONDS = 5.0
STALLED_SECONDS = 600.0  # without one task that ends: whatever the workers do, nobody waits any longer
LOGGERS = ("distributed", "distributed.client", "bokeh", "tornado", "tornado.application")

Done = TypeVar("Done")
Progress = Callable[[int, int], None]  # told how many tasks of how many are done, while somebody waits


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    """Where a scheduler is, and the files by which it and its client know each other.

    Raises:
        RequestError: code `bad-config`.
    """

    scheduler: str = ""
    scheduler_ca: Path | None = None
    scheduler_cert: Path | None = None
    scheduler_key: Path | None = None

    def __post_init__(self) -> None:
        if not self.scheduler:
            need(not any(self.files), "scheduler_ca, scheduler_cert and scheduler_key are of a scheduler")
            return
        _check_port(self.scheduler)
        need(
            urlsplit(self.scheduler).scheme == "tls",
            f'scheduler = {self.scheduler!r}: write "tls://HOST:8786", on one machine too, as whoever poses '
            'as a scheduler runs code here; see deploy/OPERATIONS.md, "Records beyond one machine"',
        )
        need(all(self.files), "a scheduler needs scheduler_ca, scheduler_cert and scheduler_key")

    @property
    def files(self) -> tuple[Path | None, ...]:
        return self.scheduler_ca, self.scheduler_cert, self.scheduler_key


def _check_port(address: str) -> None:
    try:
        split = urlsplit(address)
        need(split.port and split.hostname, f"scheduler = {address!r}: a host and a port are needed")
    except ValueError:
        need(False, f"scheduler = {address!r} is no address")


def unreachable(what: str) -> PeerError:
    """A cluster that cannot be used as it is now: nothing about the records, and worth another try."""
    return PeerError(Code.UNREACHABLE, f"the cluster cannot be used: {what}")


def versions() -> str:
    """What must be the same on both sides of what is pickled."""
    return f"eigenveil {__version__} on Python {'.'.join(platform.python_version_tuple()[:2])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """How many workers a cluster has, their threads and their bytes of memory (0: no limit is known)."""

    workers: int
    threads: int
    memory: int


class Cluster:
    """A connection, for as long as it lasts. None of its work is lost with a worker: it is done again
    elsewhere, from what it was made of.

    Raises:
        RequestError: code `bad-config`, a library or a file is missing.
        PeerError: code `unreachable`.
    """

    def __init__(self, address: ClusterAddress) -> None:
        self._client = _connected(address)
        try:
            with self._or_unreachable():
                _check_versions(self._client.run(versions))
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether what was submitted may still be there."""
        return bool(self._client.status == "running")

    def workers(self) -> Workers:
        """Who would work. Raises PeerError, code `unreachable`."""
        with self._or_unreachable():
            known = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return Workers(
            workers=len(known),
            threads=sum(one["nthreads"] for one in known),
            memory=sum(one["memory_limit"] or 0 for one in known),
        )

    def submit(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        """Have `work(*given)` done by a worker; what is given may be futures, in lists as well."""
        with self._or_unreachable():
            return self._client.submit(work, *given, pure=False)

    def keep(self, value: Any) -> Future[Any]:
        """Have a worker hold `value`: the one thing that is lost with it, because it was made here."""
        with self._or_unreachable():
            held: list[Future[Any]] = self._client.scatter([value], hash=False)
            return held[0]

    def results(
        self, wanted: Sequence[Future[Any]], among: Sequence[Future[Any]], tell: Progress
    ) -> list[Any]:
        """What came of `wanted`; progress is told of `among`, every few seconds.

        Raises:
            PeerError: code `unreachable`: the scheduler is gone, or nothing ends any more.
            RequestError: code `bad-data`: what several workers died of.
        """
        with self._or_unreachable():
            ahead = partial(_ahead, among, tell)
            return [_result(one, ahead) for one in wanted]

    @contextmanager
    def _or_unreachable(self) -> Iterator[None]:
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        try:
            yield
        except (PeerError, RequestError):
            raise
        except KilledWorker:
            problem: PeerError | RequestError = RequestError(
                Code.BAD_DATA,
                "one task ended several workers of the cluster, one after the other; is a file larger than a "
                "worker's memory?",
            )
        except (CancelledError, OSError):
            problem = unreachable("the connection to its scheduler was lost")
        except Exception as surprise:  # noqa: BLE001 - a worker's, whose text may quote a cell
            kind, at = type(surprise).__qualname__, places(surprise.__traceback__)
            problem = unreachable(f"a worker could not do its task ({kind} at {at})")
        else:
            return
        raise problem

    def close(self) -> None:
        """Let go of all that was submitted; whoever waits for it is told that it is gone."""
        self._client.close(timeout=GREETING_SECONDS)


def _result(future: Future[Any], ahead: Callable[[], int]) -> Any:
    done, since = -1, time.monotonic()
    while True:
        try:
            return future.result(timeout=PROGRESS_SECONDS)
        except TimeoutError:
            if future.done():  # since then, or what came of it is still on its way here
                return future.result(timeout=STALLED_SECONDS)
        now = ahead()
        if now > done:
            since = time.monotonic()
        elif time.monotonic() - since > STALLED_SECONDS:
            raise unreachable(f"none of its workers finished anything in {STALLED_SECONDS:g} s")
        done = now  # less than before if a worker died: what is done again counts again


def _ahead(among: Sequence[Future[Any]], tell: Progress) -> int:
    done = sum(bool(one.done()) for one in among)
    tell(done, len(among))
    return done


def _connected(address: ClusterAddress) -> Client:
    with needing("dask"):
        import distributed
    for name in LOGGERS:  # what they warn of goes where our lines go, which quote no text of a library's
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.WARNING)
    security = _security(address)
    try:
        _check_tls(address.scheduler, security.get_connection_args("client")["ssl_context"])
        return distributed.Client(
            address.scheduler,
            security=security,
            timeout=GREETING_SECONDS,
            set_as_default=False,
            name="eigenveil",
        )
    except (OSError, ValueError) as problem:
        why = "the scheduler does not answer" if isinstance(problem, OSError) else "it is another version"
        raise unreachable(f"{why} at {address.scheduler}, or knows another certificate") from None


def _check_tls(scheduler: str, context: SSLContext) -> None:
    """One handshake before a client is made: a client that fails because a server speaks first, in plain
    text, never closes its socket.

    Raises:
        OSError: nobody listens within `GREETING_SECONDS`, or not with a certificate of this cluster.
    """
    split, end = urlsplit(scheduler), time.monotonic() + GREETING_SECONDS
    while True:
        try:
            with socket.create_connection((split.hostname, split.port), GREETING_SECONDS) as plain:
                context.wrap_socket(plain).close()
            return
        except ConnectionRefusedError:  # a scheduler that is about to start
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _security(address: ClusterAddress) -> Any:
    from distributed.security import Security

    ca, cert, key = address.files
    if ca is None or cert is None or key is None:
        raise RequestError(Code.BAD_CONFIG, "no scheduler is stated")
    for path in (ca, cert):
        read(path)
    read_secret(key)  # before a library is handed what is not there, or what others can read
    return Security(
        tls_ca_file=str(ca), tls_client_cert=str(cert), tls_client_key=str(key), require_encryption=True
    )


def _check_versions(found: dict[str, str]) -> None:
    other = sorted(set(found.values()) - {versions()})
    if other:
        raise unreachable(
            f"workers run {', '.join(other)} and this process {versions()}; install one of them"
        )
