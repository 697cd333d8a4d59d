"""Loss of a cluster's worker or scheduler in the middle of a study: the same sums, or nothing charged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil_client.connection import cluster as connection
from eigenveil_client.connection.cluster import Cluster
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site.config import EngineConfig, EngineKind
from tests.client.site.daemon.test_worker import reply_to
from tests.client.site.engine.clusters import certified, kill, of_processes, of_services, of_threads
from tests.client.site.engine.test_dask import (
    FILES,
    RULES,
    assert_answer,
    assert_same,
    on_cluster,
    on_one_machine,
    write,
)
from tests.client.site.support import Log, Patch, Stage, a_plan
from tests.support import refused


@pytest.fixture
def records(tmp_path: Path) -> RecordsConfig:
    folder = tmp_path / "records"
    folder.mkdir()
    for number in range(FILES):
        write(folder / f"{number}.parquet", number)
    return RecordsConfig(source=folder)


def before_each_wait(monkeypatch: Patch, event: Callable[[Cluster, Any], None]) -> None:
    """Have `event` happen whenever tasks have been submitted, and nobody waits for them yet."""
    wait = Cluster.results

    def waiting(self: Cluster, *given: Any) -> list[Any]:
        event(self, given)
        return wait(self, *given)

    monkeypatch.setattr(Cluster, "results", waiting)


@pytest.mark.slow
def test_sums_are_equal_when_a_worker_is_killed_at_loading_and_in_each_round(
    tmp_path: Path, records: RecordsConfig, monkeypatch: Patch
) -> None:
    plan, deaths = a_plan(), list[object]()
    here = on_one_machine(records, plan)
    with of_processes(2, certified(tmp_path / "tls")) as address:
        engine = on_cluster(records, address)

        def die(cluster: Cluster, given: Any) -> None:
            holding = there._partitions[len(deaths) % FILES] if deaths else given[1][0]
            connection._result(holding, lambda: 0)
            kill(cluster, holding)
            deaths.append(holding)

        before_each_wait(monkeypatch, die)
        there = engine.load(plan)
        assert_same(there, here, plan)
    assert len(deaths) == 1 + len(rehearse(plan))


@pytest.mark.slow
def test_scheduler_killed_in_a_round_charges_nothing_until_it_is_back(
    stage: Stage, monkeypatch: Patch, caplog: Log, tmp_path: Path
) -> None:
    plan = a_plan()
    first, second, third = rehearse(plan)[:3]
    here = on_one_machine(stage.config.records, plan)
    killing = [False]
    (folder := tmp_path / "cluster").mkdir()
    with of_services(folder, 2) as services, stage.process() as (store, _):
        config = EngineConfig(kind=EngineKind.DASK, cluster=services.address)
        stage.config = replace(stage.config, column=RULES, engine=config)
        worker = stage.worker(store)

        def die(cluster: Cluster, given: Any) -> None:
            if killing.pop():
                services.kill_scheduler()
            killing.append(False)

        before_each_wait(monkeypatch, die)
        assert_answer(reply_to(stage, worker, first, plan), here, first)
        spent, left = store.ledger.ledger.spent, (store.ledger.ledger.size, len(store.egress.rows()))
        killing[:] = [True]
        with caplog.at_level(logging.WARNING):
            assert reply_to(stage, worker, second, plan) is None
        (line,) = (one for one in caplog.messages if "engine-unreachable" in one)
        assert "the connection to its scheduler was lost" in line
        monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.2)
        assert reply_to(stage, worker, second, plan) is None  # while it is away
        monkeypatch.undo()
        assert (store.ledger.ledger.size, len(store.egress.rows())) == left
        services.start(2)
        for query in (second, second, third):  # an acknowledgement was lost: the same bytes, charged once
            assert_answer(reply_to(stage, worker, query, plan), here, query)
        costs = second.priced.micro_rho + third.priced.micro_rho
        assert store.ledger.ledger.spent.micro_rho == spent.micro_rho + costs


def test_versions_of_workers_are_checked_before_each_study(
    tmp_path: Path, records: RecordsConfig, monkeypatch: Patch
) -> None:
    with of_threads(certified(tmp_path / "tls")) as address:
        engine = on_cluster(records, address)
        engine.load(a_plan())
        assert engine._connected is not None
        monkeypatch.setattr(engine._connected._client, "run", lambda _: {"of a new scheduler": "another"})
        with refused(Code.UNREACHABLE, "install the same version"):
            engine.load(a_plan())


@pytest.mark.parametrize("theirs", ["scheduler_ca", "scheduler_cert"])
def test_wrong_certificate_is_refused_by_the_end_that_sees_it(tmp_path: Path, theirs: str) -> None:
    files, others = certified(tmp_path / "tls"), certified(tmp_path / "other")
    wrong = {theirs} if theirs == "scheduler_ca" else {"scheduler_cert", "scheduler_key"}
    with of_processes(1, files) as address:
        mixed: Any = {name: others[name] for name in wrong}
        stranger = replace(address, **mixed)
        with refused(Code.UNREACHABLE, "another certificate authority"):
            Cluster(stranger)
        Cluster(address).close()  # the control
