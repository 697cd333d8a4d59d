"""Stated rules of a site for its federation [R23], the verdict of each on a plan, and reasons to decline. The
site decides by them, and the coordinator predicts the decision. No rule depends on records."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from eigenveil.accounting.budget import NoiseRule
from eigenveil.accounting.formatting import shown
from eigenveil.dictionary.dictionary import listed
from eigenveil.errors import Code, RequestError
from eigenveil.study.checks import check_readable, coerce_fields, field_types, need, plain_fields
from eigenveil.study.study import MAX_NAME_LENGTH, Study, Trust

if TYPE_CHECKING:
    from eigenveil.protocol.plan import Plan
    from eigenveil_proto.v1 import eigenveil_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of one rule for one plan. `needed`, if it is stated, names the setting that the plan does not
    fit, its value, and the value that would do."""

    rule: str
    passed: bool
    text: str
    needed: str = ""

    @property
    def short(self) -> str:
        """The setting in a few words, for a list of several sites."""
        return self.needed or self.rule

    def require(self) -> None:
        """Raise ForbiddenByRule if the plan did not pass."""
        if not self.passed:
            raise ForbiddenByRule(self.rule, self.text)


# The rules that a site may name when it declines. No record decides them: settings, confirmed cards and the
# calendar do, compared with the plan.
RULES = frozenset({
    "algorithms", "analysts", "approval_ends", "colluding", "columns", "max_columns_per_record", "max_delta",
    "max_epsilon_per_study", "maximum_records", "memory_mib", "minimum_records", "minimum_records_per_batch",
    "minimum_sites", "noise", "peers", "person_column", "required_applicant", "sites_per_person", "trust",
})  # fmt: skip


class ForbiddenByRule(RequestError):
    """Rules of a site do not allow the plan; `rule` is the first of them. Code `site-policy`."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(Code.POLICY, text)
        self.rule = rule


def upper_limit_verdict(rule: str, name: str, requested: float, most: float) -> Verdict:
    """Return the verdict on a value with an upper limit of the site."""
    text = f"{name} {shown(requested)}; at most {shown(most)}"
    needed = f"{rule} {shown(most)} (this study needs {shown(requested)})"
    return Verdict(rule=rule, passed=requested <= most, text=text, needed=needed)


def lower_limit_verdict(
    rule: str, name: str, stated: int, least: int, *, lowering: bool = False, needed: str = ""
) -> Verdict:
    """Return the verdict on a value with a lower limit of the site, which may be `lowering` it."""
    passed = stated >= least
    needed = needed or f"{rule} {least} (this study states {name} {stated})"
    remedy = "" if passed else ": raise it in the study"
    if remedy and lowering:
        remedy += f", or lower the site's {rule}"
    text = f"the study's {name} {stated}; at least {least}{remedy}"
    return Verdict(rule=rule, passed=passed, text=text, needed=needed)


def analysts_line(*analysts: str) -> str:
    """Return the line of site.toml that allows these analysts."""
    return f"analysts = {json.dumps(analysts)}"


ANY = "*"
SEES = {
    Trust.CENTRAL: "the coordinator sees this site's exact numbers",
    Trust.SECURE_AGGREGATION: "no other party sees this site's numbers, only the sum of all sites with noise",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedRules:
    """Stated rules of a site; the fields are keys of site.toml. `analysts` are the allowed analysts, or
    ("*",) for all. An empty `trust` leaves the decision to the pinned key cards of other sites. `colluding`
    and `minimum_sites` apply to studies under secure aggregation.
    Raises RequestError: code `bad-study`, a value is out of range or not printable."""

    analysts: tuple[str, ...]
    algorithms: tuple[str, ...]
    noise: str
    max_epsilon_per_study: float
    max_delta: float
    trust: tuple[str, ...]
    colluding: int
    minimum_sites: int

    def __post_init__(self) -> None:
        coerce_fields(self)  # lists become tuples
        for name in (*self.analysts, *self.algorithms, *self.trust, self.noise):
            check_readable("a name in a site's rules", name, MAX_NAME_LENGTH)
        for name in ("max_epsilon_per_study", "max_delta"):
            value = getattr(self, name)
            need(math.isfinite(value) and value > 0, f"{name} must be a number above 0")
        need(self.colluding >= 0 and self.minimum_sites >= 0, "colluding and minimum_sites must be 0 or more")

    def verdicts(self, plan: Plan) -> tuple[Verdict, ...]:
        """Return the verdicts of all stated rules on `plan`."""
        study, algorithm, epsilon = plan.study, plan.algorithm.value, f"{plan.study.neighbours.value} epsilon"
        algorithms = f"{algorithm}; allowed: {', '.join(self.algorithms)}"
        return (
            self._about_analyst(plan.analyst),
            Verdict(
                rule="algorithms",
                passed=algorithm in self.algorithms,
                text=algorithms,
                needed=f"algorithms {listed(self.algorithms)} (this study needs {algorithm})",
            ),
            self._about_noise(plan),
            upper_limit_verdict("max_epsilon_per_study", epsilon, study.epsilon, self.max_epsilon_per_study),
            upper_limit_verdict("max_delta", "delta", study.delta, self.max_delta),
            *self._about_trust(study),
        )

    def _about_analyst(self, analyst: str) -> Verdict:
        """Return the verdict on the analyst; there is none before the submission."""
        listed = ANY in self.analysts or not analyst or analyst in self.analysts
        allowed = "every analyst" if ANY in self.analysts else ", ".join(self.analysts) or "none"
        text = f"{analyst or 'not submitted yet'}; allowed: {allowed}"
        if not listed:
            text += f"; to allow it, write in site.toml: {analysts_line(*self.analysts, analyst)}"
        return Verdict(rule="analysts", passed=listed, text=text)

    def _about_noise(self, plan: Plan) -> Verdict:
        """Return the verdict on the noise; a budget counted in mu covers Gaussian noise only."""
        passed = plan.gaussian or self.noise == NoiseRule.ANY.value
        delta = shown(plan.study.delta)
        noise = "all noise is Gaussian" if plan.gaussian else f"other noise, at delta {delta}"
        return Verdict(
            rule="noise",
            passed=passed,
            text=f"{noise}; allowed: {self.noise}",
            needed=f"noise {self.noise} (this study needs {NoiseRule.ANY.value})",
        )

    def _about_trust(self, study: Study) -> list[Verdict]:
        """Return the verdicts on trust; the rules on other sites apply under secure aggregation only."""
        verdicts = []
        if self.trust:
            allowed = study.trust.value in self.trust
            remedy = "" if allowed else f'; state trust = "{self.trust[0]}" in the study'
            text = f"{study.trust.value}: {SEES[study.trust]}; allowed: {', '.join(self.trust)}{remedy}"
            needed = f"trust {listed(self.trust)} (this study states {study.trust.value})"
            verdicts.append(Verdict(rule="trust", passed=allowed, text=text, needed=needed))
        if study.masked:
            verdicts += [
                lower_limit_verdict("colluding", "colluding", study.colluders, self.colluding),
                lower_limit_verdict("minimum_sites", "quorum", study.federation.least, self.minimum_sites),
            ]
        return verdicts

    def visible_to(self, analyst: str) -> StatedRules:
        """Return the rules as shown to one analyst, without the other analysts."""
        if ANY in self.analysts:
            return self
        return replace(self, analysts=(analyst,) if analyst in self.analysts else ())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for output or another process."""
        return plain_fields(self)

    def to_proto(self) -> pb.SiteRules:
        """Return the protocol message."""
        from eigenveil_proto.v1 import eigenveil_pb2 as pb  # not loaded for command-line help

        return pb.SiteRules(**plain_fields(self))


def rules_from_proto(message: pb.SiteRules) -> StatedRules:
    """Return the rules in a message. Raises as `StatedRules`."""
    return StatedRules(**{name: getattr(message, name) for name in field_types(StatedRules)})


MAX_TEXT_LENGTH = 300  # characters
MAX_SIGNER_NAME_LENGTH = 100


class DeclineReason(StrEnum):
    """Reason for which a person declines a study, from a fixed list, so that no reason names a patient. A
    refusal because of records has no such reason: it is always `failure` to the outside. `sentence` is for
    the analyst, without its subject, the site."""

    sentence: str

    def __new__(cls, value: str, sentence: str = "") -> DeclineReason:
        member = str.__new__(cls, value)
        member._value_, member.sentence = value, sentence
        return member

    PURPOSE = "purpose", "the purpose of the study is not covered there"
    COLUMNS = "columns", "a column of the study may not be used there"
    ANALYST = "analyst", "the analyst is not known there"
    BUDGET = "budget", "the study would use too much of the privacy budget there"
    TIMING = "timing", "the study cannot run there at this time"
    UNSTATED = "unstated", "no reason was stated"


def checked_text(text: str, max_length: int = MAX_TEXT_LENGTH) -> str:
    """Return `text`, if it is one line of printable characters. A page must still escape it.
    Raises: RequestError, code `bad-argument`, also for changes of the writing direction."""
    if len(text) > max_length or not text.isprintable():
        raise RequestError(Code.BAD_ARGUMENT, f"write at most {max_length} printable characters in one line")
    return text
