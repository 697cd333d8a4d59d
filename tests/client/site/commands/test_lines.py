"""Records as a hospital has them on the first day: what is lost is counted and named, at the site alone, and
no study is answered if it is too much."""

from __future__ import annotations

import logging
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil.study.study import Column
from eigenveil_client.records.summary import LINES, RecordsSummary
from eigenveil_client.records.tables.source import BadRecords
from eigenveil_client.site import config as site_config
from eigenveil_client.site.commands import consent
from eigenveil_client.site.commands.column_profiles import profile_columns
from eigenveil_client.site.config import statement_of
from eigenveil_client.site.policy_sections import LineRules
from eigenveil_client.site.state.received_plans import ConsentStatus
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.command_line import site, written
from tests.client.site.daemon.test_worker import reply_to
from tests.client.site.support import Log, Stage, a_plan, a_study
from tests.support import refused

HEADER = "patient,a,b,c"
SECRET = "8.7654321"


def line(number: int) -> str:
    return f"p{number},{number % 7},{number % 5},{number % 3}"


def lines(count: int) -> list[str]:
    return [line(number) for number in range(count)]


def write(stage: Stage, *body: str, header: str = HEADER, encoding: str = "utf-8") -> None:
    stage.records.write_bytes(("\n".join([header, *body]) + "\n").encode(encoding))


def config(stage: Stage, more: str = "", records: str = "") -> Path:
    """A site.toml with one row of each patient, and keys of [records]."""
    path = written(stage, f'person_column = "patient"\n{more}')
    text = path.read_text().replace(f'records = "{stage.records.name}"\n', "")
    source = "" if "source" in records else f'source = "{stage.records.name}"\n'
    path.write_text(f"{text}\n[records]\n{source}{records}\n")
    return path


def checks(path: Path, *words: object) -> dict[str, dict[str, str]]:
    return {row["check"]: row for row in site(path, "check", *words, "--json").json["checks"]}


def failures(path: Path) -> list[str]:
    return [row["text"] for row in checks(path).values() if row["level"] == "fail"]


def study_file(stage: Stage, *names: str, person: str = "patient") -> Path:
    records = f'[records]\nperson_column = "{person}"\n' if person else ""
    columns = "".join(
        f'[[columns]]\nname = "{name}"\nunit = "mmol/L"\nlower = 0\nupper = 10\n' for name in names
    )
    path = stage.folder / "study.toml"
    path.write_text(
        f'name = "s"\nalgorithm = "gauss-cov"\ncomponents = 1\n{records}[privacy]\nepsilon = 1.0\n'
        f'delta = 1e-6\n[federation]\nsites = ["hospital-a", "hospital-b"]\n{columns}'
    )
    return path


def test_rows_that_vanish_fail_the_check_and_are_named(stage: Stage) -> None:
    write(stage, *(f"{one}," if number % 3 == 0 else one for number, one in enumerate(lines(60))))
    path = config(stage)
    found = checks(path)["lines"]
    assert (found["level"], site(path, "check").code) == ("fail", 3)
    assert "60 lines, 40 used; 20 lost, with too many cells (line 2, line 5, line 8, ...)" in found["text"]
    assert "max_lost_lines" in found["text"]
    write(stage, *lines(60), "p60,1,2,3,", ",1,2,3")
    found = checks(path)["lines"]
    assert (found["level"], site(path, "check").code) == ("warn", 0)
    assert found["text"].endswith("1 lost, with too many cells (line 62); 1 lost, without a person (line 63)")


def test_a_semicolon_file_that_is_read_with_commas_fails_the_check(stage: Stage) -> None:
    write(stage, *(one.replace(",", ";") for one in lines(60)), header=HEADER.replace(",", ";"))
    assert any('State separator = ";" under [records]' in text for text in failures(written(stage)))
    numbers = [one.replace(",", ";") + ",5" for one in lines(60)]
    write(stage, *numbers[:50], header=HEADER.replace(",", ";"))
    assert site(written(stage), "check").code == 3
    assert failures(config(stage, records='separator = ";"\ndecimal = ","')) == []


def test_several_rows_of_a_person_in_a_select_are_not_read_at_random(stage: Stage) -> None:
    write(stage, *lines(60), *(f"p{number},9,9,9" for number in range(30)))
    assert failures(config(stage)) == []  # a file has a first row
    path = config(stage, records='sql = "SELECT * FROM records"')
    (text,) = failures(path)
    assert "30 lost, of a person whose other row, with other values, is the record (row " in text
    assert "state `rows` for each column" in checks(path)["lines"]["action"]
    rules = "".join(f'[column.{name}]\nrows = "mean"\n' for name in "abc")
    assert failures(config(stage, rules, 'sql = "SELECT * FROM records"')) == []


def test_unreadable_cells_are_shown_at_the_site_alone(stage: Stage, caplog: Log) -> None:
    caplog.set_level(logging.DEBUG)
    bad = [f"q{number},1,{SECRET}x{number}{'y' * 60},3" for number in range(4)]
    write(stage, *lines(60), *bad, "q9,1,2,\x1b[31m")
    stage.config = site_config.load(config(stage, "max_unreadable = 0.5\n"))
    shown = site(stage.folder / "site.toml", "check").out
    assert f"'{SECRET}x0{'y' * 28}…' (line 62)" in " ".join(shown.split())
    assert "x3" not in shown
    assert "\x1b" not in shown
    assert "'�[31m' (line 66)" in " ".join(shown.split())
    plan = a_plan(a_study(person_column="patient"))
    with stage.process() as (store, worker):
        sent = [reply_to(stage, worker, query, plan) for query in rehearse(plan)]
        assert SECRET not in repr([sent, store.egress.rows()])
    assert SECRET not in caplog.text
    assert "cells-unreadable" in caplog.text


def test_cells_of_lost_lines_are_not_unreadable_ones(stage: Stage, caplog: Log) -> None:
    caplog.set_level(logging.DEBUG)
    write(stage, *lines(60), ",x,y,z")
    site_config.record_reader(site_config.load(config(stage)))(a_study(person_column="patient"))
    (found,) = [vars(one)["fields"] for one in caplog.records if "cells-unreadable" in one.getMessage()]
    assert found == {"columns": LINES}


def test_units_below_the_header_are_no_lost_line(stage: Stage) -> None:
    write(stage, ",mm,mm,mm", *lines(60))
    assert checks(config(stage))["lines"]["level"] == "warn"
    found = checks(config(stage, records="units_below_header = true"))["lines"]
    assert (found["level"], found["text"]) == ("ok", "60 lines, 60 used")


def test_text_and_dates_that_nothing_names_do_not_warn_for_ever(stage: Stage) -> None:
    write(stage, *(f"{one},2024-03-{number % 28 + 1:02},fever" for number, one in enumerate(lines(60))),
        header=f"{HEADER},visit_date,note")  # fmt: skip
    found = checks(config(stage))
    assert not [name for name in found if name.startswith("column ")]
    assert "visit_date, note" in found["columns"]["text"]
    assert "column 'note'" in checks(config(stage, 'columns = ["a", "note"]\n'))
    assert "column 'visit_date'" in checks(config(stage, 'offers = ["visit_date"]\n'))


def test_record_numbers_are_not_among_all_columns(stage: Stage) -> None:
    write(stage, *(f"{one},{number}" for number, one in enumerate(lines(60))), header=f"{HEADER},Patient_ID")
    path = config(stage)
    assert [one.seen.name for one in profile_columns(site_config.load(path))] == ["a", "b", "c"]
    number = Column(name="Patient_ID", unit="", lower=0, upper=100)
    study = a_study(columns=(*a_study().columns, number), person_column="patient")
    for more, passed in (("", False), ('columns = ["a", "b", "c", "Patient_ID"]\n', True)):
        policy = site_config.load(config(stage, more)).policy
        (verdict,) = (one for one in policy.verdicts(a_plan(study), 0) if one.rule == "columns")
        assert (verdict.passed, "Patient_ID" in verdict.text) == (passed, not passed)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_bytes_that_are_not_in_the_encoding_are_counted_and_not_read(stage: Stage, encoding: str) -> None:
    body = [f"M{'ü' if number % 2 else 'ö'}ller{number // 2},{number % 7},1,2" for number in range(60)]
    write(stage, *lines(60), *body, encoding="latin-1")
    (text,) = failures(config(stage, records=f'encoding = "{encoding}"'))
    assert "120 lines, 60 used; 60 lost, with bytes that are not in the file's encoding (line 62," in text
    path = config(stage, records='encoding = "latin-1"')
    assert failures(path) == []
    assert checks(path)["lines"]["text"] == "120 lines, 120 used"


def test_explain_names_the_lost_lines(stage: Stage) -> None:
    write(stage, *lines(60), "p60,1,2", "p60,1,x,3")
    path, study = written(stage), study_file(stage, *"abc", person="")
    view = site(path, "explain", study, "--json").json["lines"]
    assert (view["lines"], view["used"]) == (62, 61)
    assert view["lost"] == [{"reason": "too-few-cells", "lines": 1, "first": ["line 62"]}]
    shown = " ".join(site(path, "explain", study).out.split())
    assert "lines: 62 lines, 61 used; 1 lost, with too few cells (line 62) (this stays here)" in shown
    assert "such as 'x' (line 63)" in shown


def test_too_many_lost_lines_decline_every_study_with_the_word_of_any_bad_file(
    stage: Stage, caplog: Log
) -> None:
    caplog.set_level(logging.INFO, "eigenveil")
    broken = [f"q{number},1" for number in range(11)]
    studies = [
        a_study(person_column="patient"),
        a_study(person_column="patient", columns=a_study().columns[:2], name="another"),
    ]
    for body, declined in ((broken, True), (broken[:10], False)):
        write(stage, *lines(60), *body)
        stage.config = replace(site_config.load(config(stage)), state=stage.folder / f"{declined}.db")
        with stage.process() as (store, worker):
            for plan in map(a_plan, studies):
                answer = reply_to(stage, worker, rehearse(plan)[0], plan)
                assert (getattr(answer, "reason", None) == pb.DECLINE_REASON_FAILURE) is declined
            assert (store.ledger.ledger.spent.micro_rho == 0) is declined
            (row,) = store.database.rows("SELECT declined FROM line_decisions")  # one bit for both studies
            assert bool(row["declined"]) is declined
        if declined:
            assert caplog.messages[-1].endswith("code=bad-data about=lines")
    assert "11" not in "".join(one for one in caplog.messages if "about=lines" in one)


def test_a_version_is_decided_once(stage: Stage) -> None:
    counted = RecordsSummary(persons=60, file=b"", quality=(), lines=1000, lost=0)
    usual, strict = LineRules(), LineRules(max_lost_lines=0, max_lost_share=0.01)

    def declines(version: bytes, lost: int, rules: LineRules) -> bool:
        with suppress(BadRecords):
            store.line_decisions.require(rules, replace(counted, version=version, lost=lost))
            return False
        return True

    with closing(stage.store()) as store:
        assert [declines(b"1", lost, usual) for lost in (11, 0)] == [True, True]
        assert [declines(b"2", lost, usual) for lost in (10, 11)] == [False, False]
        assert not declines(b"1", 11, LineRules(max_lost_lines=11))  # the site changed its limits
        assert [declines(b"3", 11, strict), declines(b"4", 10, strict)] == [True, False]


def test_a_study_of_records_with_lost_lines_cannot_be_approved(stage: Stage) -> None:
    write(stage, *lines(60), *(f"q{number},1" for number in range(11)))
    stage.config = site_config.load(config(stage, 'approval = "manual"\n'))
    plan = a_plan(a_study(person_column="patient"))
    with stage.process() as (store, worker):
        assert reply_to(stage, worker, rehearse(plan)[0], plan) is None
        with refused(Code.BAD_DATA, "max_lost_lines", "eigenveil-site check"):
            consent.approve(stage.config, store, store.studies.find(plan.digest), by="Dr. Grau")
        assert store.studies.status(plan.digest) is ConsentStatus.PENDING


def test_no_count_and_no_limit_of_lines_is_stated_to_the_federation(stage: Stage) -> None:
    write(stage, *lines(60))
    stated = [statement_of(site_config.load(config(stage, f"max_lost_lines = {most}\n"))) for most in (0, 99)]
    assert stated[0] == stated[1]
