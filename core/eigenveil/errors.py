"""Every way eigenveil says no: three families, one stable code each, one table.

A message says what happened and what to do next. Codes never change meaning; the table
below is the only place that maps them to a gRPC status and to a process exit code.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar


def spoken(round: int) -> str:
    """A round for people, who count from 1; fields, digests and logs count from 0."""
    return f"round {round + 1}"


class Family(Enum):
    """Whose fault it is."""

    REQUEST = "request"
    PEER = "peer"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class Rule:
    """How one code is shown outside: family, gRPC status name, process exit code."""

    family: Family
    status: str
    exit_code: int


class Code(Enum):
    BAD_STUDY = "bad-study"
    BAD_DATA = "bad-data"
    BAD_CONFIG = "bad-config"
    BAD_ARGUMENT = "bad-argument"
    OVERFLOW = "plan-overflow"
    BUDGET = "budget-exhausted"
    POLICY = "site-policy"
    TOO_FEW_RECORDS = "too-few-records"
    TOO_MANY_RECORDS = "too-many-records"
    POOR_COLUMN = "poor-column"
    NOT_FOUND = "not-found"
    CONFLICT = "conflict"
    NOT_READY = "not-ready"
    STUDY_FAILED = "study-failed"
    CANCELLED = "cancelled"
    BAD_RELEASE = "bad-release"
    UNSIGNED = "unsigned"
    AUTHORIZATION = "authorization"
    AUTHORIZATION_EXPIRED = "authorization-expired"
    UNCONFIRMED = "unconfirmed-analyst"
    IDENTITY = "identity"
    PROTOCOL = "protocol"
    BAD_CONTRIBUTION = "bad-contribution"
    VERSION = "version"
    UNREACHABLE = "unreachable"
    STORAGE = "storage"
    BUG = "bug"


TABLE: dict[Code, Rule] = {
    Code.BAD_STUDY: Rule(Family.REQUEST, "INVALID_ARGUMENT", 2),
    Code.BAD_DATA: Rule(Family.REQUEST, "INVALID_ARGUMENT", 3),
    Code.BAD_CONFIG: Rule(Family.REQUEST, "INVALID_ARGUMENT", 4),
    Code.BAD_ARGUMENT: Rule(Family.REQUEST, "INVALID_ARGUMENT", 2),
    Code.OVERFLOW: Rule(Family.REQUEST, "INVALID_ARGUMENT", 2),
    Code.BUDGET: Rule(Family.REQUEST, "RESOURCE_EXHAUSTED", 5),
    Code.POLICY: Rule(Family.REQUEST, "FAILED_PRECONDITION", 6),
    Code.TOO_FEW_RECORDS: Rule(Family.REQUEST, "FAILED_PRECONDITION", 7),
    Code.TOO_MANY_RECORDS: Rule(Family.REQUEST, "FAILED_PRECONDITION", 7),
    Code.POOR_COLUMN: Rule(Family.REQUEST, "FAILED_PRECONDITION", 3),
    Code.NOT_FOUND: Rule(Family.REQUEST, "NOT_FOUND", 8),
    Code.CONFLICT: Rule(Family.REQUEST, "ALREADY_EXISTS", 9),
    Code.NOT_READY: Rule(Family.REQUEST, "UNAVAILABLE", 10),
    Code.STUDY_FAILED: Rule(Family.REQUEST, "ABORTED", 11),
    Code.CANCELLED: Rule(Family.REQUEST, "CANCELLED", 12),
    Code.BAD_RELEASE: Rule(Family.REQUEST, "DATA_LOSS", 13),
    Code.UNSIGNED: Rule(Family.REQUEST, "FAILED_PRECONDITION", 15),
    Code.AUTHORIZATION: Rule(Family.REQUEST, "INVALID_ARGUMENT", 16),
    Code.AUTHORIZATION_EXPIRED: Rule(Family.REQUEST, "FAILED_PRECONDITION", 17),
    Code.UNCONFIRMED: Rule(Family.REQUEST, "FAILED_PRECONDITION", 18),
    Code.IDENTITY: Rule(Family.PEER, "PERMISSION_DENIED", 20),
    Code.PROTOCOL: Rule(Family.PEER, "FAILED_PRECONDITION", 21),
    Code.BAD_CONTRIBUTION: Rule(Family.PEER, "INVALID_ARGUMENT", 22),
    Code.VERSION: Rule(Family.PEER, "UNIMPLEMENTED", 23),
    Code.UNREACHABLE: Rule(Family.PEER, "UNAVAILABLE", 24),
    Code.STORAGE: Rule(Family.INTERNAL, "INTERNAL", 70),
    Code.BUG: Rule(Family.INTERNAL, "INTERNAL", 71),
}


class EigenveilError(Exception):
    """Base of every error eigenveil raises on purpose: catch one of its three families.

    `code` is stable, `family` says whose fault it is; `str(error)` is a sentence for a person.

    >>> from eigenveil import RequestError
    >>> issubclass(RequestError, EigenveilError)
    True
    """

    family: ClassVar[Family]

    def __init__(self, code: Code, message: str) -> None:
        if TABLE[code].family is not self.family:
            raise TypeError(f"{code} does not belong to the {self.family.value} family")
        super().__init__(message)
        self.code = code

    @property
    def exit_code(self) -> int:
        """What a command ends with."""
        return TABLE[self.code].exit_code

    @property
    def status(self) -> str:
        """What a gRPC call ends with."""
        return TABLE[self.code].status


class RequestError(EigenveilError):
    """What the analyst or operator asked for cannot be done as asked.

    >>> from eigenveil import Column, RequestError
    >>> try:
    ...     Column(name="age", unit="year", lower=120, upper=0)
    ... except RequestError as problem:
    ...     print(problem.code.value, problem.exit_code)
    bad-study 2
    """

    family = Family.REQUEST


class PeerError(EigenveilError):
    """The other end broke the protocol.

    >>> from eigenveil import PeerError
    >>> from eigenveil.protocol.plan import plan_from_json
    >>> try:
    ...     plan_from_json(b"{}")  # what a federation sent as a plan
    ... except PeerError as problem:
    ...     print(problem.code.value, problem.status)
    protocol FAILED_PRECONDITION
    """

    family = Family.PEER


class InternalError(EigenveilError):
    """Our own bug, or our own disk.

    >>> from eigenveil import InternalError
    >>> from eigenveil.numerics.encoding import check_exact
    >>> try:
    ...     check_exact(2.0**53)  # a product that floats would round
    ... except InternalError as problem:
    ...     print(problem.code.value, problem.exit_code)
    bug 71
    """

    family = Family.INTERNAL


FAMILIES: dict[Family, type[EigenveilError]] = {
    kind.family: kind for kind in (RequestError, PeerError, InternalError)
}


def error(code: Code, message: str) -> EigenveilError:
    """Build the error of the family that `code` belongs to (used when decoding a peer's error)."""
    return FAMILIES[TABLE[code].family](code, message)
