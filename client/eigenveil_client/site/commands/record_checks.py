"""Checks of a study before a site's records are read, for the people who decide: its columns against the
headers of the records, and the memory that it needs. Nothing of the result is sent: the daemon agrees or
declines without it."""

from __future__ import annotations

from collections.abc import Sequence

from eigenveil.dictionary.dictionary import listed
from eigenveil.dictionary.site_limits import MEMORY_RULE
from eigenveil.dictionary.site_rules import Verdict
from eigenveil.errors import RequestError
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.study.study import Study
from eigenveil_client.records.isolated import reader
from eigenveil_client.records.recoding.parsing import column_parser
from eigenveil_client.records.records import check_study
from eigenveil_client.records.tables.source import Headers
from eigenveil_client.site.config import SiteConfig, plausible_ranges
from eigenveil_client.site.engine.engine import make_engine

RULE = "records"


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
    problems: list[str] = []
    person = config.person_header
    wanted = [(column.name, column.unit) for column in study.columns]
    for name, unit in (*wanted, *([(person, None)] if person else [])):
        try:
            column_parser(headers, config.column, name, unit)
        except RequestError as problem:
            problems.append(str(problem))
    try:
        check_study(study, config.column, plausible_ranges(config))
    except RequestError as problem:
        problems.append(str(problem))
    text = listed(problems) if problems else "the records have every column of the study"
    return Verdict(rule=RULE, passed=not problems, text=text)


Courses = Sequence[Sequence[RoundQuery]]  # the queries of each possible course of a plan


def check_memory(config: SiteConfig, plan: Plan, courses: Courses) -> None:
    """Check that the site's engine can answer every query of a plan, as the daemon does before a person
    decides. Raises RequestError: code `site-policy`."""
    make_engine(config).check(plan, [query for course in courses for query in course])


def memory_verdict(config: SiteConfig, plan: Plan, courses: Courses) -> Verdict:
    """Return the verdict of `check_memory`."""
    try:
        check_memory(config, plan, courses)
    except RequestError as problem:
        return Verdict(rule=MEMORY_RULE, passed=False, text=str(problem))
    return Verdict(rule=MEMORY_RULE, passed=True, text="every query can be answered from memory or a file")
