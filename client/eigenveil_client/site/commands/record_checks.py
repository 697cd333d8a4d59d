"""Checks of a study for the people who decide, before they do: its columns against the headers of the
records, the lines and cells of the records, and the memory that it needs. Nothing of the result is sent: the
daemon agrees or declines without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from eigenveil.dictionary.dictionary import listed, suggestion
from eigenveil.dictionary.site_rules import Verdict
from eigenveil.errors import RequestError
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.study.study import Study
from eigenveil_client.records.isolated import reader
from eigenveil_client.records.recoding.parsing import column_parser
from eigenveil_client.records.summary import check_study
from eigenveil_client.records.tables.cells import ignore
from eigenveil_client.records.tables.source import Headers, MissingColumn
from eigenveil_client.site.config import SiteConfig, plausible_ranges, record_reader
from eigenveil_client.site.engine.engine import make_engine

RULE = "records"
OF_CONTENTS = (RULE, "persons", "lines", "cells")  # the rules about the records themselves


def read_headers(config: SiteConfig) -> Headers | RequestError:
    """Return the headers of the records, or the error why they cannot be read."""
    try:
        return Headers(reader.columns(config.records, config.engine.reading))
    except RequestError as problem:
        return problem


def columns_verdict(config: SiteConfig, study: Study, headers: Headers | RequestError) -> Verdict:
    """Return the verdict on the columns of a study and the column of the person, as reading the records would
    decide it."""
    if isinstance(headers, RequestError):
        return Verdict(rule=RULE, passed=False, text=str(headers))
    missing: list[str] = []
    try:
        if config.person_header:
            headers.find_person(config.person_header)
        check_study(study, config.column, plausible_ranges(config), config.records.person)
        for column in study.columns:
            try:
                column_parser(headers, config.column, column.name, column.unit)
            except MissingColumn as problem:
                missing.append(f"{problem.about!r}{suggestion(problem.about, problem.near)}")
    except RequestError as problem:
        return Verdict(rule=RULE, passed=False, text=str(problem))
    text = f"not in the records: {listed(missing)}"
    every = "the records have every column of the study"
    return Verdict(rule=RULE, passed=not missing, text=text if missing else every)


def contents_verdicts(
    config: SiteConfig, study: Study, headers: Headers | RequestError
) -> tuple[Verdict, ...]:
    """Return the verdicts on a study's columns and, if the records have them, on the persons, lost lines and
    cells, by the numbers of a decision: the records are read once. Nothing is stored or logged."""
    columns = columns_verdict(config, study, headers)
    if not columns.passed:
        return (columns,)
    try:
        found = record_reader(config).stream(study, lambda rows: None, ignore)
    except RequestError as problem:
        return (Verdict(rule=RULE, passed=False, text=str(problem)),)
    policy, lost = config.policy, f"{found.lost} of {found.lines} lines are lost"
    few = not policy.lines.exceeded(lines=found.lines, lost=found.lost)
    todo = "" if few else ". No study is answered: run eigenveil-site check, which names them"
    return (
        columns,
        _verdict(
            "persons", partial(policy.require_record_count, found.persons), "neither too few nor too many"
        ),
        Verdict(rule="lines", passed=few, text=f"{lost}; {policy.lines.limit}{todo}"),
        _verdict(
            "cells", partial(policy.quality.require, found.quality), "every column has enough usable values"
        ),
    )


def _verdict(rule: str, check: Callable[[], None], fine: str) -> Verdict:
    try:
        check()
    except RequestError as problem:
        return Verdict(rule=rule, passed=False, text=str(problem))
    return Verdict(rule=rule, passed=True, text=fine)


Courses = Sequence[Sequence[RoundQuery]]  # the queries of each possible course of a plan


def engine_verdict(config: SiteConfig, plan: Plan, courses: Courses) -> Verdict:
    """Return the verdict of the site's engine on a plan, as the daemon finds it before a person decides."""
    return make_engine(config).check(plan, [one for course in courses for one in course])
