"""Kept grids answer as a new reading would, are of the present file, and end by age, size and withdrawal."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.aggregation import Contribution
from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Column, Missing, Study
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site.config import EngineConfig, EngineKind
from eigenveil_client.site.daemon import service
from eigenveil_client.site.engine import kept_grids
from eigenveil_client.site.engine.engine import LocalEngine, LocalRecords, make_engine
from eigenveil_client.site.engine.kept_grids import grid_study
from eigenveil_client.site.state.received_plans import PersonDecision
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.daemon.test_worker import reply_to
from tests.client.site.support import (
    Coordinator,
    Patch,
    Stage,
    a_plan,
    a_study,
    ended,
    reason_of,
    until,
    work,
    write_records,
)
from tests.support import refused

KEPT = EngineConfig(keep_hours=1.0)
STUDY = a_study(epsilon=0.2)
FIRST, SECOND, THIRD = (a_plan(STUDY, submission=str(number)) for number in range(3))
PERSON = PersonDecision(by="anna")


def engine_of(stage: Stage, settings: EngineConfig = KEPT, **limits: Any) -> tuple[LocalEngine, list[Study]]:
    """An engine, and the studies for which it reads the records."""
    engine = make_engine(replace(stage.config, engine=replace(settings, **limits)))
    assert isinstance(engine, LocalEngine)
    read, studies = engine._read, list[Study]()

    def noted(study: Study, sink: Any) -> Any:
        studies.append(study)
        return read(study, sink)

    engine._read = noted
    return engine, studies


def answers(engine: LocalEngine, plan: Plan) -> list[Any]:
    with closing(engine.load(plan)) as records:
        found = [records.answer(one.query, one.priced.frame).tolist() for one in rehearse(plan)]
        facts = (records.persons, records.file, records.quality, records.lines, records.lost, records.version)
        return [*found, facts]


@pytest.fixture(params=[{"kind": EngineKind.MEMORY}, {"kind": EngineKind.DISK}, {"memory_mib": 1}])
def settings(request: pytest.FixtureRequest) -> EngineConfig:
    return replace(KEPT, **request.param)


def test_a_second_study_reads_nothing_and_answers_as_a_new_reading(
    stage: Stage, settings: EngineConfig
) -> None:
    write_records(stage.records, rows=3000)
    engine, read = engine_of(stage, settings)
    first, second = answers(engine, FIRST), answers(engine, SECOND)
    assert len(read) == 1
    other = replace(STUDY, name="other", epsilon=2.0, algorithm=Algorithm.REFINED_COV, max_sites_per_person=2)
    third = answers(engine, a_plan(other))
    assert len(read) == 1
    assert first == second == answers(engine_of(stage, replace(settings, keep_hours=0.0))[0], FIRST)
    assert third[-1] == first[-1]
    assert os.listdir(stage.config.scratch.folder or "") == [], "it has no name"


OF_THE_GRID: dict[str, Any] = {
    "columns": (Column(name="a", unit="", lower=-9, upper=9),), "missing": Missing.FILL,
    "person_column": "who", "grid_steps": 64, "max_records": 999,
}  # fmt: skip
OF_NO_GRID: dict[str, Any] = {
    "name": "x", "epsilon": 0.9, "delta": 1e-9, "components": 2, "purpose": "p", "centring": False,
    "algorithm": Algorithm.REFINED_COV, "neighbours": Neighbours.REPLACE_ONE, "max_sites_per_person": 3,
    "expected_records": 99, "radius": 0.7,
}  # fmt: skip


@pytest.mark.parametrize("name", [one.name for one in fields(Study)])
def test_a_grid_has_all_of_a_study_that_changes_its_rows_and_no_more(name: str) -> None:
    filled = tuple(replace(one, fill=one.lower) for one in STUDY.columns)
    study = replace(STUDY, columns=filled)
    if name in OF_THE_GRID:
        assert grid_study(replace(study, **{name: OF_THE_GRID[name]})) != grid_study(study)
    elif name in OF_NO_GRID:
        assert grid_study(replace(study, **{name: OF_NO_GRID[name]})) == grid_study(study)
    else:
        assert name in {
            "federation", "applicant", "choose", "scaling", "rank", "batches", "trust", "colluding",
            "spare_attempts", "prior",
        }  # fmt: skip


@pytest.mark.parametrize("name", [one.name for one in fields(Column)])
def test_each_value_of_a_column_makes_another_grid(name: str) -> None:
    column = replace(STUDY.columns[0], fill=0.0)
    values: dict[str, Any] = {"name": "other", "unit": "kg", "lower": -7.0, "upper": 77.0, "fill": 0.5}
    others = STUDY.columns[1:]
    one, two = ((made, *others) for made in (column, replace(column, **{name: values[name]})))
    assert grid_study(replace(STUDY, columns=one)) != grid_study(replace(STUDY, columns=two))


def test_records_that_are_all_dropped_are_loaded_again_each_time(stage: Stage) -> None:
    stage.records.write_text("a,b,c\n" + "1,,3\n" * 40)
    engine, read = engine_of(stage)
    assert answers(engine, FIRST) == answers(engine, SECOND)
    assert len(read) == 2


def test_a_changed_file_of_the_same_size_and_time_is_read_again(stage: Stage) -> None:
    engine, read = engine_of(stage)
    before, found = answers(engine, FIRST), stage.records.stat()
    text = stage.records.read_text()
    digit = next(one for one in "123456789" if one in text[10:])
    stage.records.write_text(text[:10] + text[10:].replace(digit, "0", 1))
    os.utime(stage.records, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert stage.records.stat().st_size == found.st_size
    after = answers(engine, SECOND)
    assert (len(read), after[-1] == before[-1]) == (2, False)
    assert answers(engine, THIRD) == after
    assert len(read) == 2


def test_a_file_that_changes_while_it_is_read_is_not_kept(stage: Stage) -> None:
    engine, read = engine_of(stage)
    inner = engine._read

    def touched(study: Study, sink: Any) -> Any:
        found = inner(study, sink)
        os.utime(stage.records)
        return found

    engine._read = touched
    answers(engine, FIRST)
    answers(engine, SECOND)
    assert len(read) == 2


def test_grids_end_by_age_and_the_oldest_by_size(stage: Stage, monkeypatch: Patch) -> None:
    stage.rule(maximum_records=10**6)
    write_records(stage.records, rows=120_000)  # 720,000 bytes of three columns
    engine, read = engine_of(stage, keep_mib=1)
    narrow = a_plan(replace(STUDY, columns=STUDY.columns[:2], components=1))
    for plan in (FIRST, narrow, narrow):
        engine.load(plan).close()
    assert len(read) == 2
    engine.load(FIRST).close()
    assert len(read) == 3, "both take over a MiB"
    kept = engine._kept
    assert kept is not None
    (grid,) = kept._grids.values()
    monkeypatch.setattr(kept, "_seconds", 0.0)
    engine.tidy(lambda plans: ())
    assert (kept.plans, grid.rows._file.closed) == (frozenset(), True)


def test_a_grid_that_is_too_large_is_not_kept(stage: Stage) -> None:
    stage.rule(maximum_records=10**6)
    write_records(stage.records, rows=200_000)
    engine, read = engine_of(stage, keep_mib=1)
    for plan in (FIRST, SECOND):
        engine.load(plan).close()
    assert len(read) == 2


# ---------------------------------------------------------------- consent, damage, crashes


@pytest.fixture
def opened(stage: Stage, monkeypatch: Patch) -> Callable[[], list[Any]]:
    """The files of kept grids so far."""
    made: list[Any] = []
    keep = kept_grids.KeptGrid

    def noted(**values: Any) -> Any:
        made.append(values["rows"])
        return keep(**values)

    monkeypatch.setattr(kept_grids, "KeptGrid", noted)
    stage.config = replace(stage.config, engine=KEPT)
    return lambda: [one for one in made if not one._file.closed]


@pytest.mark.parametrize("end", [False, True])
def test_a_withdrawal_deletes_what_its_study_used_and_no_later_study_uses_it(
    stage: Stage, opened: Callable[[], list[Any]], end: bool
) -> None:
    with stage.process() as (_, worker):
        for plan in (FIRST, SECOND):
            assert isinstance(reply_to(stage, worker, rehearse(plan)[0], plan), Contribution)
        assert len(opened()) == 1
        with stage.process() as (other, _):
            other.withdraw(FIRST.digest, PERSON)
        if end:
            worker.work(ended(FIRST))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalEngine, "_rows_of", None)  # which every use of a kept grid calls
            assert isinstance(reply_to(stage, worker, rehearse(THIRD)[0], THIRD), Contribution)
        kept = opened()
        assert isinstance(worker.work(work(rehearse(SECOND)[1])), Contribution), "this one was not withdrawn"
        with stage.process() as (other, _):
            other.withdraw(THIRD.digest, PERSON)
        worker.tidy()
        assert (len(kept), opened()) == (1, [])


async def test_a_daemon_deletes_what_a_withdrawn_study_used_also_without_its_coordinator(
    stage: Stage, opened: Callable[[], list[Any]], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(service, "TIDY_SECONDS", 0.01)
    coordinator = Coordinator(work=[work(rehearse(FIRST)[0], stage.signed(FIRST))])
    async with stage.serving(coordinator) as port:
        pass  # the identity knows where it is
    async with stage.daemon():
        async with stage.serving(coordinator, port):
            await until(lambda: coordinator.contributions)
        assert len(opened()) == 1
        with stage.process() as (other, _):
            other.withdraw(FIRST.digest, PERSON)
        await until(lambda: not opened())


def test_a_damaged_grid_is_read_again_from_the_source(stage: Stage, opened: Callable[[], list[Any]]) -> None:
    stage.config = replace(stage.config, engine=replace(KEPT, kind=EngineKind.DISK))
    with stage.process() as (_, worker):
        assert isinstance(reply_to(stage, worker, rehearse(FIRST)[0], FIRST), Contribution)
        (kept,) = opened()
        os.ftruncate(kept._file.fileno(), 7)
        assert isinstance(reply_to(stage, worker, rehearse(SECOND)[0], SECOND), Contribution)  # a count
        assert reason_of(worker.work(work(rehearse(SECOND)[1]))) == pb.DECLINE_REASON_FAILURE
        assert opened() == []
        assert isinstance(worker.work(work(rehearse(SECOND)[1])), Contribution)


def test_what_is_kept_is_noise_without_the_key_of_this_process(
    stage: Stage, opened: Callable[[], list[Any]]
) -> None:
    write_records(stage.records, rows=3000)
    engine = make_engine(stage.config)
    with closing(engine.load(FIRST)) as records:
        assert isinstance(records, LocalRecords)
        rows = np.ascontiguousarray(records._rows[0:3000]).tobytes()
    (kept,) = opened()
    stored = os.pread(kept._file.fileno(), len(rows), 0)
    plain = bytearray(len(rows))
    kept.read_into(0, memoryview(plain))
    assert (len(stored), bytes(plain) == rows, stored == rows) == (len(rows), True, False)
    same = np.frombuffer(stored, np.uint8) == np.frombuffer(rows, np.uint8)
    assert same.mean() < 0.02, "1 in 256 by chance"


def test_nothing_is_kept_without_a_setting_unencrypted_or_of_a_select(stage: Stage, tmp_path: Path) -> None:
    def kept(**changes: Any) -> object:
        return make_engine(replace(stage.config, **changes))._kept  # type: ignore[attr-defined]

    view = RecordsConfig(source=stage.records, sql="SELECT * FROM records")
    assert kept(engine=KEPT) is not None
    assert kept() is None
    assert kept(engine=KEPT, records=view) is None
    with refused(Code.BAD_CONFIG, "needs encrypt"):
        EngineConfig(keep_hours=1.0, encrypt=False)


def test_rows_of_a_study_that_is_withdrawn_before_they_are_kept_are_not(
    stage: Stage, opened: Callable[[], list[Any]]
) -> None:
    with stage.process() as (_, worker):
        engine = worker._engine
        assert isinstance(engine, LocalEngine)
        read = engine._read

        def withdrawn(study: Study, sink: Any) -> Any:
            found = read(study, sink)
            with stage.process() as (other, _):
                other.withdraw(FIRST.digest, PERSON)
            return found

        engine._read = withdrawn
        assert reason_of(reply_to(stage, worker, rehearse(FIRST)[0], FIRST)) == pb.DECLINE_REASON_POLICY
        assert opened() == []
