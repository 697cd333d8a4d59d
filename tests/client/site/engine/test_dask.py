"""A cluster's answer is one machine's, to the last bit, even if a worker dies meanwhile."""

from __future__ import annotations

import pickle
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from eigenveil.accounting.budget import NoiseRule
from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, PeerError
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import needs_all_rows
from eigenveil.study.algorithm import Algorithm
from eigenveil_client.connection import cluster as connection
from eigenveil_client.connection.cluster import Cluster, ClusterAddress
from eigenveil_client.records.column_quality import NO_RANGES
from eigenveil_client.records.isolated.reader import Reader
from eigenveil_client.records.recoding.rule import ColumnRule
from eigenveil_client.records.scratch_files import SYSTEM
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig
from eigenveil_client.site.commands.checks import offline_checks
from eigenveil_client.site.config import EngineConfig, EngineKind, load
from eigenveil_client.site.engine import dask as engine_module
from eigenveil_client.site.engine.dask import DaskEngine, WorkerError, _raise_worker_error
from eigenveil_client.site.engine.engine import LoadedRecords, LocalEngine
from eigenveil_common.doctor import Check, Level
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.daemon.test_worker import reply_to
from tests.client.site.engine.clusters import certified, free_port, kill, of_processes, of_threads
from tests.client.site.support import Log, Patch, Stage, a_plan, a_study, reason_of
from tests.support import Capture, refused

TLS = 'scheduler_ca = "ca.pem"\nscheduler_cert = "cert.pem"\nscheduler_key = "key.pem"'
ABSENT = ClusterAddress(
    scheduler="tls://127.0.0.1:1", scheduler_ca=Path("ca.pem"), scheduler_cert=Path("cert.pem"),
    scheduler_key=Path("key.pem"),
)  # fmt: skip

RULES = (ColumnRule(name="b", factor=2.0, missing=("-999",)),)
FILES, WORKERS = 6, 4


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterAddress]:
    with of_processes(WORKERS, certified(tmp_path_factory.mktemp("cluster") / "tls")) as started:
        yield started


@pytest.fixture
def records(tmp_path: Path) -> RecordsConfig:
    folder = tmp_path / "records"
    folder.mkdir()
    for number in range(FILES):
        write(folder / f"{number}.parquet", number)
    return RecordsConfig(source=folder)


def write(path: Path, seed: int) -> None:
    cells = np.random.default_rng(seed).normal(5, 2, size=(3, 300 + seed)).astype(str).astype(object)
    cells[0, seed], cells[1, 7], cells[2, 9] = "one", "-999", None
    parquet.write_table(pa.table(dict(zip("abc", map(pa.array, cells.tolist()), strict=True))), path)


def on_cluster(records: RecordsConfig, address: ClusterAddress) -> DaskEngine:
    return DaskEngine(records, RULES, NO_RANGES, address)


def on_one_machine(records: RecordsConfig, plan: Plan) -> LoadedRecords:
    read = Reader(records, RULES, NO_RANGES, SYSTEM)
    return LocalEngine(read, EngineConfig(kind=EngineKind.MEMORY), SYSTEM, 100_000).load(plan)


def assert_same(there: LoadedRecords, here: LoadedRecords, plan: Plan) -> None:
    for round_query in rehearse(plan):
        mine, theirs = (
            stored.answer(round_query.query, round_query.priced.frame) for stored in (here, there)
        )
        assert mine.any()
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("changes", [
    {"algorithm": Algorithm.GAUSS_COV},
    {"algorithm": Algorithm.REFINED_COV},
    {"algorithm": Algorithm.DP_PCA, "grid_steps": 64},
], ids=lambda changes: changes["algorithm"].value)  # fmt: skip
def test_a_cluster_answers_as_one_machine(
    address: ClusterAddress, records: RecordsConfig, changes: dict[str, Any]
) -> None:
    plan = a_plan(a_study(**changes))
    here, there = on_one_machine(records, plan), on_cluster(records, address).load(plan)
    assert_same(there, here, plan)
    assert (there.persons, there.quality) == (here.persons, here.quality)


def test_death_of_a_worker_is_survived(
    address: ClusterAddress, records: RecordsConfig, monkeypatch: Patch
) -> None:
    plan = a_plan()
    here, there = on_one_machine(records, plan), on_cluster(records, address).load(plan)
    wait, deaths = Cluster.results, [there._partitions[0]]

    def waiting(self: Cluster, *given: Any) -> list[Any]:
        if deaths:
            kill(self, deaths.pop())
        return wait(self, *given)

    monkeypatch.setattr(Cluster, "results", waiting)
    assert_same(there, here, plan)
    assert not deaths


@pytest.mark.slow
def test_changed_file_is_not_answered_from(address: ClusterAddress, records: RecordsConfig) -> None:
    plan = a_plan()
    engine = on_cluster(records, address)
    there = engine.load(plan)
    assert engine.load(plan).file == there.file  # wherever partitions lie
    round_query = rehearse(plan)[0]
    assert records.source is not None
    write(records.source / "2.parquet", 77)
    there.answer(round_query.query, round_query.priced.frame)  # every partition is still there
    kill(there._cluster, there._partitions[2])
    with pytest.raises(BadRecords) as refusal:
        there.answer(round_query.query, round_query.priced.frame)
    assert refusal.value.about == "changed"
    assert engine.load(plan).file != there.file


def test_another_authoritys_certificate_does_not_get_in(address: ClusterAddress, tmp_path: Path) -> None:
    files: Any = certified(tmp_path / "tls")
    stranger = replace(address, **files)
    with refused(Code.UNREACHABLE):
        Cluster(stranger)
    Cluster(address).close()  # the control


def test_a_connection_is_encrypted_and_its_key_is_private(tmp_path: Path) -> None:
    files: Any = certified(tmp_path / "tls")
    address = ClusterAddress(scheduler="tls://127.0.0.1:1", **files)
    with dask.config.set({"distributed.comm.require-encryption": False}):  # as a machine's file may say
        assert connection._security(address).get_connection_args("client")["require_encryption"]
    files["scheduler_key"].chmod(0o644)
    with refused(Code.BAD_CONFIG):
        Cluster(address)


def test_a_bad_partition_shows_no_cell(
    address: ClusterAddress, records: RecordsConfig, capfd: Capture
) -> None:
    assert records.source is not None
    (records.source / "3.parquet").write_bytes(b"no such thing as a secret")
    plan = a_plan()
    engine = on_cluster(records, address)
    with pytest.raises(BadRecords):
        engine.load(plan)
    parquet.write_table(pa.table({name: ["a-secret"] * 9 for name in "abc"}), records.source / "3.parquet")
    assert engine.load(plan).quality[0].unreadable == FILES - 1 + 9
    assert "secret" not in "".join(capfd.readouterr())


def test_an_unreachable_cluster_is_retried(
    stage: Stage, monkeypatch: Patch, caplog: Log, tmp_path: Path
) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.5)
    plan, port, files = a_plan(), free_port(), certified(tmp_path / "tls")
    first, second = rehearse(plan)[:2]
    here = on_one_machine(stage.config.records, plan)
    address = ClusterAddress(scheduler=f"tls://127.0.0.1:{port}", **files)
    stage.config = replace(
        stage.config, column=RULES, engine=EngineConfig(kind=EngineKind.DASK, cluster=address)
    )
    with stage.process() as (store, worker):
        with of_threads(files, port):
            assert_answer(reply_to(stage, worker, first, plan), here, first)
            assert "workers: 1, threads: 2" in engine_check(stage).text
        left = store.ledger.ledger.size, len(store.egress.rows())
        assert [reply_to(stage, worker, second, plan) for _ in range(2)] == [None, None]
        assert engine_check(stage).level is Level.FAIL
        assert (store.ledger.ledger.size, len(store.egress.rows())) == left
        with of_threads(files, port):
            assert_answer(reply_to(stage, worker, second, plan), here, second)
    assert any("engine-unreachable" in line for line in caplog.messages)


def engine_check(stage: Stage) -> Check:
    (found,) = (one for one in offline_checks(stage.config, None) if one.about == "engine")
    return found


def assert_answer(reply: object, here: LoadedRecords, round_query: RoundQuery) -> None:
    assert isinstance(reply, Contribution)
    assert np.array_equal(reply.values, here.answer(round_query.query, round_query.priced.frame))


@pytest.mark.parametrize("algorithm", [Algorithm.PRIVATE_OJA, Algorithm.DP_PCA_SINGLE_PASS])
def test_query_of_all_rows_is_declined_before_a_round(stage: Stage, algorithm: Algorithm) -> None:
    address = ABSENT  # to which nobody connects
    allowed = replace(
        stage.config.policy, algorithms=(algorithm.value,), minimum_records=2000, noise=NoiseRule.ANY
    )
    stage.config = replace(
        stage.config, policy=allowed, engine=EngineConfig(kind=EngineKind.DASK, cluster=address)
    )
    plan = a_plan(a_study(algorithm=algorithm))
    with stage.process() as (store, worker):
        assert reason_of(reply_to(stage, worker, rehearse(plan)[0], plan)) == pb.DECLINE_REASON_POLICY
        assert not store.ledger.ledger.size


def test_query_of_all_rows_is_refused_by_a_cluster(tmp_path: Path) -> None:
    plan = a_plan(a_study(algorithm=Algorithm.PRIVATE_OJA))
    for number in range(2):
        write(tmp_path / f"{number}.parquet", number)
    round_query = rehearse(plan)
    dealt = next(one for one in round_query if needs_all_rows(one.query))
    with of_threads(certified(tmp_path / "tls")) as address:
        stored = on_cluster(RecordsConfig(source=tmp_path), address).load(plan)
        assert stored.answer(round_query[0].query, round_query[0].priced.frame).any()  # the control
        with refused(Code.POLICY):
            stored.answer(dealt.query, dealt.priced.frame)


@pytest.mark.parametrize(("engine", "more"), [
    ('kind = "dask"', ""),
    ('scheduler = "tcp://127.0.0.1:8786"', ""),
    ('kind = "dask"\nscheduler = "tcp://cluster.example:8786"', ""),
    ('kind = "dask"\nscheduler = "tls://cluster.example:8786"', ""),
    ('kind = "dask"\nscheduler = "tcp://127.0.0.1:8786"', ""),
    (f'kind = "dask"\nscheduler = "tcp://127.0.0.1:8786"\n{TLS}', ""),
    ('kind = "dask"\nscheduler = "tls://127.0.0.1:8786"\nscheduler_ca = "ca.pem"', ""),
    (f'kind = "dask"\nscheduler = "tls://127.0.0.1"\n{TLS}', ""),
    (f'kind = "dask"\nscheduler = "tls://127.0.0.1:8786"\n{TLS}', 'person_column = "patient"'),
])  # fmt: skip
def test_unsafe_engine_configuration_is_refused(tmp_path: Path, engine: str, more: str) -> None:
    about = 'name = "a"\nrecords = "r"\nidentity = "i"\nstate = "s.db"\n'
    good = f'{about}[engine]\nkind = "dask"\nscheduler = "tls://[::1]:8786"\n{TLS}\n'
    (tmp_path / "site.toml").write_text(good)
    assert load(tmp_path / "site.toml").engine.kind is EngineKind.DASK  # the control
    (tmp_path / "site.toml").write_text(f"{about}{more}\n[engine]\n{engine}\n")
    with refused(Code.BAD_CONFIG):
        load(tmp_path / "site.toml")


def test_what_is_done_again_after_a_death_counts_as_progress(monkeypatch: Patch) -> None:
    ahead, clock = iter([9, 2, 3, 4, 5, 6]), iter(range(0, 10_000, 400))
    monkeypatch.setattr(connection, "time", mock.Mock(monotonic=lambda: next(clock)))
    future = mock.Mock()
    future.done.return_value = False
    future.result.side_effect = [*[TimeoutError] * 6, "answer"]
    assert connection._result(future, lambda: next(ahead)) == "answer"
    future.done.return_value = True  # by the time that one has looked, or on its way for longer
    future.result.side_effect = [TimeoutError, "answer"]
    assert connection._result(future, lambda: 0) == "answer"


def test_a_failed_disk_of_a_worker_is_unreachable() -> None:
    """`storage` of the site's own disk ends its daemon."""
    with refused(Code.UNREACHABLE, "the disk is full"):
        _raise_worker_error(WorkerError(code=Code.STORAGE, message="the disk is full"))
    with refused(Code.POLICY, "too wide"):
        _raise_worker_error(WorkerError(code=Code.POLICY, message="too wide"))


class Marker:
    """Message of a rogue scheduler: unpickling makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self._path,)


@contextmanager
def a_rogue(data: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A plain server at a port of this machine that says `data` to whoever comes; and the
    first words of each that has closed its connection."""
    received: list[bytes] = []

    class Rogue(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(30)
            self.request.sendall(data)
            first = self.request.recv(2**16)
            with suppress(ConnectionResetError):
                while self.request.recv(2**16):
                    pass
            received.append(first)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Rogue) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1], received
        finally:
            server.shutdown()
            thread.join()


def test_plain_tcp_is_refused_with_the_page_that_makes_certificates() -> None:
    with refused(Code.BAD_CONFIG, "deploy/OPERATIONS.md"):
        ClusterAddress(scheduler="tcp://127.0.0.1:8786")


def test_workers_of_another_version_are_refused() -> None:
    ours = connection.versions()
    connection._check_versions({"one": ours, "other": ours})
    with pytest.raises(PeerError, match=f"{ours}.0"):
        connection._check_versions({"one": ours, "other": f"{ours}.0"})


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


def test_two_threads_share_one_connection(monkeypatch: Patch) -> None:
    made: list[mock.Mock] = []

    def connect(address: ClusterAddress) -> mock.Mock:
        time.sleep(0.05)  # the other thread asks meanwhile
        made.append(mock.Mock())
        return made[-1]

    monkeypatch.setattr(engine_module, "Cluster", connect)
    engine = DaskEngine(RecordsConfig(source=Path("x.parquet")), (), NO_RANGES, ABSENT)
    with ThreadPoolExecutor(2) as threads:
        one, two = threads.map(lambda _: engine._cluster(), range(2))
    assert (one is two, len(made)) == (True, 1)
