"""Stated limits of a site for its federation [R23]: which person a row is about, and how many records it
answers with, as far as its settings say. A study is compared with these settings, never with records: the
site decides by the result, and the coordinator predicts the decision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eigenveil.dictionary.site_rules import Verdict, lower_limit_verdict
from eigenveil.study.checks import coerce_fields, need, plain_fields
from eigenveil.study.study import MAX_MULTIPLICITY, MAX_RECORDS

if TYPE_CHECKING:
    from eigenveil.protocol.plan import Plan
    from eigenveil.protocol.query import RoundQuery
    from eigenveil.study.study import Study
    from eigenveil_proto.v1 import eigenveil_pb2 as pb

MIB = 2**20
MEMORY_RULE = "memory_mib"
MAX_MEMORY_MIB = 2**40  # 1 EiB


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedLimits:
    """Stated limits of a site; the fields are keys of site.toml. An empty `person_column` means that every
    row is another person. `memory_mib` is None if the memory for records has no limit, or has one that no
    setting states. Raises RequestError: code `bad-study`, a value is out of range."""

    person_column: str
    sites_per_person: int
    minimum_records: int
    maximum_records: int
    max_columns_per_record: float
    minimum_records_per_batch: int
    memory_mib: int | None = None

    def __post_init__(self) -> None:
        coerce_fields(self)
        wide, mib = self.max_columns_per_record, self.memory_mib
        need(1 <= self.sites_per_person <= MAX_MULTIPLICITY, "sites_per_person is out of range")
        need(1 <= self.minimum_records <= self.maximum_records, "minimum_records is out of range")
        need(self.maximum_records <= MAX_RECORDS, f"maximum_records must be at most {MAX_RECORDS}")
        need(self.minimum_records_per_batch >= 1, "minimum_records_per_batch must be 1 or more")
        need(wide > 0, "max_columns_per_record must be above 0")
        need(mib is None or 1 <= mib <= MAX_MEMORY_MIB, "memory_mib is out of range")

    def verdicts(self, plan: Plan, round_queries: Sequence[RoundQuery] | None = None) -> tuple[Verdict, ...]:
        """Return the verdict of each limit on `plan`; of the memory only with all its `round_queries`."""
        study = plan.study
        return (
            self._about_person(study),
            self._about_sites(study),
            self._about_columns(study),
            self._about_cohort(study),
            self._about_most(study),
            self._about_batches(plan),
            *(() if round_queries is None else (self._about_memory(plan, round_queries),)),
        )

    def _about_memory(self, plan: Plan, round_queries: Sequence[RoundQuery]) -> Verdict:
        return memory_verdict(
            plan, round_queries, maximum_records=self.maximum_records, memory_mib=self.memory_mib
        )

    def _about_person(self, study: Study) -> Verdict:
        stated, own = study.person_column or "", self.person_column
        if stated == own:
            return Verdict(rule="person_column", passed=True, text=_person(own))
        differ = f"in the study {_person(stated)}, at the site {_person(own)}; both must be equal"
        names = (repr(name) if name else "none" for name in (own, stated))
        needed = "person_column ({} at the site, {} in the study)".format(*names)
        return Verdict(rule="person_column", passed=False, text=differ, needed=needed)

    def _about_sites(self, study: Study) -> Verdict:
        stated, least = study.max_sites_per_person, self.sites_per_person
        needed = f"sites_per_person {least} (this study states max_sites_per_person {stated})"
        return lower_limit_verdict("sites_per_person", "max_sites_per_person", stated, least, needed=needed)

    def _about_columns(self, study: Study) -> Verdict:
        wide, least, d = self.max_columns_per_record, self.minimum_records, study.dimension
        columns = f"{d} columns; at most {wide * least:g}: {wide:g} for each of {least} records"
        enough = math.ceil(min(d / wide, MAX_RECORDS))
        needed = _needed("minimum_records", least, enough, "max_columns_per_record")
        passed = d <= wide * least
        return Verdict(rule="max_columns_per_record", passed=passed, text=columns, needed=needed)

    def _about_cohort(self, study: Study) -> Verdict:
        cohort, least = study.federation.minimum_cohort, self.minimum_records
        passed = cohort <= least
        advice = "" if passed else ": lower it in the study, or raise the site's minimum_records"
        text = f"the study's minimum_cohort {cohort}; at most {least}{advice}"
        needed = _needed("minimum_records", least, cohort, "minimum_cohort")
        return Verdict(rule="minimum_records", passed=passed, text=text, needed=needed)

    def _about_most(self, study: Study) -> Verdict:
        most, own = study.max_records, self.maximum_records
        needed = f"maximum_records {own} (this study allows {most}, its max_records)"
        return lower_limit_verdict("maximum_records", "max_records", most, own, lowering=True, needed=needed)

    def _about_batches(self, plan: Plan) -> Verdict:
        """Return the verdict on the records in each sum, for a file of the minimum size."""
        parts, least, records = plan.batches, self.minimum_records_per_batch, self.minimum_records
        passed = parts == 1 or records >= parts * least
        advice = "" if passed else ": lower batches in the study, or raise the site's minimum_records"
        in_batches = f"{parts} batches of {records} records; at least {least} in each{advice}"
        text = "every sum is over all records" if parts == 1 else in_batches
        needed = _needed("minimum_records", records, parts * least, "minimum_records_per_batch")
        return Verdict(rule="minimum_records_per_batch", passed=passed, text=text, needed=needed)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for output or another process; no limit is None, as JSON has no infinity."""
        wide = self.max_columns_per_record
        return plain_fields(self) | {"max_columns_per_record": None if math.isinf(wide) else wide}

    def to_proto(self) -> pb.SiteLimits:
        """Return the protocol message."""
        from eigenveil_proto.v1 import eigenveil_pb2 as pb  # not loaded for command-line help

        return pb.SiteLimits(**(plain_fields(self) | {"memory_mib": self.memory_mib or 0}))


def limits_from_dict(data: Mapping[str, Any]) -> StatedLimits:
    """Return the inverse of `StatedLimits.to_dict`. Raises as `StatedLimits`."""
    wide = data["max_columns_per_record"]
    return StatedLimits(**{**data, "max_columns_per_record": math.inf if wide is None else wide})


def limits_from_proto(message: pb.SiteLimits) -> StatedLimits:
    """Return the limits in a message. Raises as `StatedLimits`."""
    return StatedLimits(
        person_column=message.person_column,
        sites_per_person=message.sites_per_person,
        minimum_records=message.minimum_records,
        maximum_records=message.maximum_records,
        max_columns_per_record=message.max_columns_per_record,
        minimum_records_per_batch=message.minimum_records_per_batch,
        memory_mib=message.memory_mib or None,
    )


def memory_verdict(
    plan: Plan, round_queries: Sequence[RoundQuery], *, maximum_records: int, memory_mib: int | None
) -> Verdict:
    """Return the verdict on `memory_mib`, None for no limit. It has to hold `maximum_records` of the plan if
    one of its `round_queries` needs all records at once."""
    from eigenveil.queries import needs_all_rows  # not loaded for command-line help
    from eigenveil.study.grid import record_bytes

    size = math.ceil(maximum_records * record_bytes(plan.study) / MIB)
    at_once = any(needs_all_rows(one.query) for one in round_queries)
    if not at_once or memory_mib is None or size <= memory_mib:
        text = "all records fit into memory" if at_once else "no query needs all records in memory"
        return Verdict(rule=MEMORY_RULE, passed=True, text=text)
    text = (
        "the study divides or pairs the records, which needs all of them in memory: "
        f"{maximum_records} records (maximum_records) of {plan.study.dimension} columns take "
        f"{size} MiB, but site.toml allows {memory_mib} (memory_mib)"
    )
    needed = _needed(MEMORY_RULE, memory_mib, size, "maximum_records")
    return Verdict(rule=MEMORY_RULE, passed=False, text=text, needed=needed)


def _person(column: str) -> str:
    return f"column {column!r} names the person" if column else "every row is another person"


def _needed(setting: str, value: int, enough: int, by: str = "") -> str:
    """Return a setting with its value, and the value that this study needs."""
    return f"{setting} {value} (this study needs {enough}{f', by {by}' if by else ''})"
