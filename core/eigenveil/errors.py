"""Errors of eigenveil: three families, stable codes, one table of their gRPC statuses and exit codes.

* EigenveilError
  x RequestError   the request is invalid, or it is not allowed now
  x PeerError      the other end broke the protocol
  x InternalError  a bug or a storage failure on this machine

A message says what is wrong and what to do. A code never changes its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar


def round_label(round: int) -> str:
    """Return the label of a round for people, counted from 1. Fields, digests and logs count from 0."""
    return f"round {round + 1}"


class ErrorFamily(Enum):
    """Party that caused an error: the requester, the peer or this program."""

    REQUEST = "request"
    PEER = "peer"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """Family, gRPC status name and process exit code of one error code."""

    family: ErrorFamily
    status: str
    exit_code: int


class Code(Enum):
    """Stable codes, each with its failure in one sentence."""

    BAD_STUDY = "bad-study"  # The study is not valid.
    BAD_DATA = "bad-data"  # The records do not match the study, or cannot be read.
    BAD_CONFIG = "bad-config"  # The configuration file is not valid.
    BAD_ARGUMENT = "bad-argument"  # An argument of a command or call is not valid.
    OVERFLOW = "plan-overflow"  # The sums or the noise of the study could exceed 64-bit integers.
    BUDGET = "budget-exhausted"  # The privacy budget does not cover the cost.
    QUOTA = "quota-exhausted"  # The analyst has used up a quota of submissions or work.
    POLICY = "site-policy"  # A site's rules do not allow the study.
    TOO_FEW_RECORDS = "too-few-records"  # The site has fewer records than the minimum cohort.
    TOO_MANY_RECORDS = "too-many-records"  # The site has more records than the study allows.
    LOW_QUALITY_COLUMN = (
        "low-quality-column"  # Too many values of a column are missing, unreadable or out of bounds.
    )
    NOT_FOUND = "not-found"  # The requested study, file or name does not exist.
    CONFLICT = "conflict"  # The name or study exists already, or has changed since it was read.
    NOT_READY = "not-ready"  # The result or service is not available yet; retry later.
    STUDY_FAILED = "study-failed"  # The study ended without a release.
    CANCELLED = "cancelled"  # The study was cancelled.
    BAD_RELEASE = "bad-release"  # The release file is invalid, or was changed after it was signed.
    UNSIGNED = "unsigned"  # The study has no signature of its analyst, and one is required.
    AUTHORIZATION = "authorization"  # The analyst's signature does not cover this plan.
    AUTHORIZATION_EXPIRED = "authorization-expired"  # The analyst's signature has expired.
    UNCONFIRMED = "unconfirmed-analyst"  # The site has not confirmed the analyst's key card.
    IDENTITY = "identity"  # A signature, certificate or name does not identify the expected party.
    PROTOCOL = "protocol"  # The peer sent a message that the protocol does not allow.
    BAD_CONTRIBUTION = "bad-contribution"  # A site sent values that its records cannot have.
    VERSION = "version"  # The peer uses a version that this program does not support.
    UNREACHABLE = "unreachable"  # The peer does not answer.
    STORAGE = "storage"  # The database or disk of this machine failed.
    BUG = "bug"  # This program has a bug; report it.


TABLE: dict[Code, ErrorRule] = {
    Code.BAD_STUDY: ErrorRule(ErrorFamily.REQUEST, "INVALID_ARGUMENT", 2),
    Code.BAD_DATA: ErrorRule(ErrorFamily.REQUEST, "INVALID_ARGUMENT", 3),
    Code.BAD_CONFIG: ErrorRule(ErrorFamily.REQUEST, "INVALID_ARGUMENT", 4),
    Code.BAD_ARGUMENT: ErrorRule(ErrorFamily.REQUEST, "INVALID_ARGUMENT", 2),
    Code.OVERFLOW: ErrorRule(ErrorFamily.REQUEST, "INVALID_ARGUMENT", 2),
    Code.BUDGET: ErrorRule(ErrorFamily.REQUEST, "RESOURCE_EXHAUSTED", 5),
    Code.QUOTA: ErrorRule(ErrorFamily.REQUEST, "RESOURCE_EXHAUSTED", 14),
    Code.POLICY: ErrorRule(ErrorFamily.REQUEST, "FAILED_PRECONDITION", 6),
    Code.TOO_FEW_RECORDS: ErrorRule(ErrorFamily.REQUEST, "FAILED_PRECONDITION", 7),
    Code.TOO_MANY_RECORDS: ErrorRule(ErrorFamily.REQUEST, "FAILED_PRECONDITION", 7),
    Code.LOW_QUALITY_COLUMN: ErrorRule(ErrorFamily.REQUEST, "FAILED_PRECONDITION", 3),
    Code.NOT_FOUND: ErrorRule(ErrorFamily.REQUEST, "NOT_FOUND", 8),
    Code.CONFLICT: ErrorRule(ErrorFamily.REQUEST, "ALREADY_EXISTS", 9),
    Code.NOT_READY: ErrorRule(ErrorFamily.REQUEST, "UNAVAILABLE", 10),
    Code.STUDY_FAILED: ErrorRule(ErrorFamily.REQUEST, "ABORTED", 11),
    Code.CANCELLED: ErrorRule(ErrorFamily.REQUEST, "CANCELLED", 12),
    Code.BAD_RELEASE: ErrorRule(ErrorFamily.REQUEST, "DATA_LOSS", 13),
    Code.UNSIGNED: ErrorRule(ErrorFamily.REQUEST, "FAILED_PRECONDITION", 15),
    Code.AUTHORIZATION: ErrorRule(ErrorFamily.REQUEST, "INVALID_ARGUMENT", 16),
    Code.AUTHORIZATION_EXPIRED: ErrorRule(ErrorFamily.REQUEST, "FAILED_PRECONDITION", 17),
    Code.UNCONFIRMED: ErrorRule(ErrorFamily.REQUEST, "FAILED_PRECONDITION", 18),
    Code.IDENTITY: ErrorRule(ErrorFamily.PEER, "PERMISSION_DENIED", 20),
    Code.PROTOCOL: ErrorRule(ErrorFamily.PEER, "FAILED_PRECONDITION", 21),
    Code.BAD_CONTRIBUTION: ErrorRule(ErrorFamily.PEER, "INVALID_ARGUMENT", 22),
    Code.VERSION: ErrorRule(ErrorFamily.PEER, "UNIMPLEMENTED", 23),
    Code.UNREACHABLE: ErrorRule(ErrorFamily.PEER, "UNAVAILABLE", 24),
    Code.STORAGE: ErrorRule(ErrorFamily.INTERNAL, "INTERNAL", 70),
    Code.BUG: ErrorRule(ErrorFamily.INTERNAL, "INTERNAL", 71),
}


class EigenveilError(Exception):
    """Base class of all errors of eigenveil.

    `code` is stable, `family` names the party that caused it, and `str(error)` is the message.

    >>> from eigenveil import RequestError
    >>> issubclass(RequestError, EigenveilError)
    True
    """

    family: ClassVar[ErrorFamily]

    def __init__(self, code: Code, message: str) -> None:
        if TABLE[code].family is not self.family:
            raise TypeError(f"{code} does not belong to the {self.family.value} family")
        super().__init__(message)
        self.code = code

    @property
    def exit_code(self) -> int:
        """Exit code of a command that fails with this error."""
        return TABLE[self.code].exit_code

    @property
    def status(self) -> str:
        """Name of the gRPC status of a call that fails with this error."""
        return TABLE[self.code].status


class RequestError(EigenveilError):
    """The request of an analyst or operator is invalid, or is not allowed now.

    >>> from eigenveil import Column, RequestError
    >>> try:
    ...     Column(name="age", unit="year", lower=120, upper=0)
    ... except RequestError as problem:
    ...     print(problem.code.value, problem.exit_code)
    bad-study 2
    """

    family = ErrorFamily.REQUEST


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

    family = ErrorFamily.PEER


class InternalError(EigenveilError):
    """This program has a bug, or its storage failed.

    >>> from eigenveil import InternalError
    >>> from eigenveil.numerics.encoding import check_exact
    >>> try:
    ...     check_exact(2.0**53)  # a product that floats would round
    ... except InternalError as problem:
    ...     print(problem.code.value, problem.exit_code)
    bug 71
    """

    family = ErrorFamily.INTERNAL


FAMILIES: dict[ErrorFamily, type[EigenveilError]] = {
    kind.family: kind for kind in (RequestError, PeerError, InternalError)
}


def error(code: Code, message: str) -> EigenveilError:
    """Return the error of the family that `code` belongs to; used to decode a peer's error."""
    return FAMILIES[TABLE[code].family](code, message)
