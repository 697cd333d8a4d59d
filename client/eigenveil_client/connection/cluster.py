"""Connection to a site's Dask cluster: the scheduler's address, tasks, and errors with their cause.

A client of a scheduler can run code on its workers. A false scheduler can run code at its clients, which
unpickle its messages. Therefore both ends use TLS with certificates of the cluster's own authority. That also
holds on one machine, where any user may listen at a port. Workers run functions of this package on plain
values."""

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
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from eigenveil import __version__
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil_common.command import require_extra
from eigenveil_common.config import ensure
from eigenveil_common.files import read, read_secret
from eigenveil_common.log import frame_locations

if TYPE_CHECKING:
    from ssl import SSLContext

    from distributed import Client, Future

CONNECT_SECONDS = 10.0
PROGRESS_SECONDS = 5.0
STALLED_SECONDS = 600.0  # no task finished in this time: give up
LOGGERS = ("distributed", "distributed.client", "bokeh", "tornado", "tornado.application")

Progress = Callable[[int, int], None]  # called with (finished tasks, all tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    """Address of a scheduler, and the certificate files of the connection to it."""

    scheduler: str = ""
    scheduler_ca: Path | None = None
    scheduler_cert: Path | None = None
    scheduler_key: Path | None = None

    def __post_init__(self) -> None:
        if not self.scheduler:
            ensure(not any(self.files), "scheduler_ca, scheduler_cert and scheduler_key need scheduler")
            return
        try:
            split = urlsplit(self.scheduler)
            known = split.port and split.hostname
        except ValueError:
            ensure(False, f"scheduler = {self.scheduler!r} is not an address; write tls://HOST:8786")
        ensure(known, f"scheduler = {self.scheduler!r}: state a host and a port")
        ensure(
            urlsplit(self.scheduler).scheme == "tls",
            f'scheduler = {self.scheduler!r}: write "tls://HOST:8786"; one machine needs TLS too. See '
            'deploy/OPERATIONS.md, "Records beyond one machine"',
        )
        ensure(all(self.files), "a scheduler needs scheduler_ca, scheduler_cert and scheduler_key")

    @property
    def files(self) -> tuple[Path | None, ...]:
        return self.scheduler_ca, self.scheduler_cert, self.scheduler_key


def unreachable_error(what: str) -> PeerError:
    """Return the error of a cluster that is unusable now; the records are not the cause."""
    return PeerError(Code.UNREACHABLE, f"the cluster cannot be used: {what}")


def versions() -> str:
    """Return the versions that both sides of pickling must share."""
    return f"eigenveil {__version__} on Python {'.'.join(platform.python_version_tuple()[:2])}"


class Workers(NamedTuple):
    """Numbers of workers and threads of a cluster, and bytes of memory (0: no known limit)."""

    workers: int
    threads: int
    memory: int


class Cluster:
    """Connection to a cluster. Another worker repeats the tasks of a lost worker.

    Raises:
        RequestError: code `bad-config`, a library or a file is missing.
        PeerError: code `unreachable_error`."""

    def __init__(self, address: ClusterAddress) -> None:
        self._client = _open_client(address)
        try:
            self.check_versions()
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """True while the scheduler may still hold the submitted tasks."""
        return bool(self._client.status == "running")

    def check_versions(self) -> None:
        """Raise PeerError, code `unreachable_error`, if a worker runs other versions than this process. A
        scheduler that was lost has other workers when it is back."""
        with self._translate_errors():
            _check_versions(self._client.run(versions))

    def workers(self) -> Workers:
        """Return the cluster's workers. Raises PeerError, code `unreachable_error`."""
        with self._translate_errors():
            known = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return Workers(
            workers=len(known),
            threads=sum(one["nthreads"] for one in known),
            memory=sum(one["memory_limit"] or 0 for one in known),
        )

    def submit(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        """Submit `work(*given)` to a worker; arguments may be futures, also in lists."""
        with self._translate_errors():
            return self._client.submit(work, *given, pure=False)

    def scatter(self, value: Any) -> Future[Any]:
        """Store `value` on a worker. It is lost with that worker, because no task can make it again."""
        with self._translate_errors():
            scattered: list[Future[Any]] = self._client.scatter([value], hash=False)
            return scattered[0]

    def results(
        self, futures: Sequence[Future[Any]], tracked: Sequence[Future[Any]], report: Progress
    ) -> list[Any]:
        """Return the results of `futures`; `report` gets the progress of `tracked` every few seconds.

        Raises:
            PeerError: code `unreachable_error`: the scheduler is gone, or no task finishes.
            RequestError: code `bad-data`: one task ended several workers."""
        with self._translate_errors():
            return [_result(one, partial(_report_progress, tracked, report)) for one in futures]

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        try:
            yield
        except (PeerError, RequestError):
            raise
        except KilledWorker:
            why = "one task ended several workers of the cluster; check that each file fits into their memory"
            raise RequestError(Code.BAD_DATA, why) from None
        except (CancelledError, OSError):
            raise unreachable_error("the connection to its scheduler was lost") from None
        except Exception as unexpected:  # noqa: BLE001 - its text may quote a cell
            kind, at = type(unexpected).__qualname__, frame_locations(unexpected.__traceback__)
            raise unreachable_error(f"a worker could not do its task ({kind} at {at})") from None

    def close(self) -> None:
        """Release all submitted tasks; callers that wait for them get an error."""
        self._client.close(timeout=CONNECT_SECONDS)


def _result(future: Future[Any], count_done: Callable[[], int]) -> Any:
    done, last_progress = -1, time.monotonic()
    while True:
        try:
            return future.result(timeout=PROGRESS_SECONDS)
        except TimeoutError:
            if future.done():  # finished meanwhile, or its result is in transfer
                return future.result(timeout=STALLED_SECONDS)
        now = count_done()
        if now > done:
            last_progress = time.monotonic()
        elif time.monotonic() - last_progress > STALLED_SECONDS:
            raise unreachable_error(f"no worker finished a task in {STALLED_SECONDS:g} s")
        done = now  # smaller than before if a worker was lost, whose tasks run again


def _report_progress(tracked: Sequence[Future[Any]], report: Progress) -> int:
    done = sum(bool(one.done()) for one in tracked)
    report(done, len(tracked))
    return done


def _open_client(address: ClusterAddress) -> Client:
    with require_extra("dask"):
        import distributed
    for name in LOGGERS:  # their warnings go to our log, which quotes no text of a library
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.WARNING)
    security = _security(address)
    try:
        _check_tls(address.scheduler, security.get_connection_args("client")["ssl_context"])
        return distributed.Client(
            address.scheduler, security=security, timeout=CONNECT_SECONDS,
            set_as_default=False, name="eigenveil",
        )  # fmt: skip
    except (OSError, ValueError) as problem:
        why = "the scheduler does not answer" if isinstance(problem, OSError) else "another version runs"
        other = "or it uses another certificate authority"
        raise unreachable_error(f"{why} at {address.scheduler}, {other}") from None


def _check_tls(scheduler: str, context: SSLContext) -> None:
    """Make one TLS handshake before the Dask client is created. A Dask client whose handshake fails because
    the server sends plain text first never closes its socket."""
    split, deadline = urlsplit(scheduler), time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            with socket.create_connection((split.hostname, split.port), CONNECT_SECONDS) as plain:
                context.wrap_socket(plain).close()
            return
        except ConnectionRefusedError:  # the scheduler may be starting
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _security(address: ClusterAddress) -> Any:
    from distributed.security import Security

    ca, cert, key = address.files
    if ca is None or cert is None or key is None:
        raise RequestError(Code.BAD_CONFIG, "no scheduler is stated; set scheduler")
    for path in (ca, cert):
        read(path)
    read_secret(key)  # a missing file, or one that others can read, is reported before the library uses it
    return Security(
        tls_ca_file=str(ca), tls_client_cert=str(cert), tls_client_key=str(key), require_encryption=True
    )


def _check_versions(found: dict[str, str]) -> None:
    other = sorted(set(found.values()) - {versions()})
    if other:
        todo = f"but this process runs {versions()}; install the same version"
        raise unreachable_error(f"workers run {', '.join(other)}, {todo}")
