"""Errors of eigenveil: three families, and one table of stable codes.

* EigenveilError
  x RequestError   the request is invalid, or it is not allowed now
  x PeerError      the other end broke the protocol
  x InternalError  a bug or a storage failure on this machine

A message says what is wrong and what to do. A code never changes its meaning."""

from __future__ import annotations

import shlex
import sys
from enum import Enum
from typing import Any


def round_label(round: int) -> str:
    """Return the label of a round for people, counted from 1. Fields, digests and logs count from 0."""
    return f"round {round + 1}"


def install_command(requirement: str) -> str:
    """Return the command that installs a requirement, such as "eigenveil[analyst]", where this program runs:
    a bare pip may be that of another environment."""
    return f"{shlex.quote(sys.executable or 'python3')} -m pip install {shlex.quote(requirement)}"


class EigenveilError(Exception):
    """Base class of all errors of eigenveil.

    `code` is stable, the class names the party that caused it, and `str(error)` is the message.

    >>> from eigenveil import RequestError
    >>> issubclass(RequestError, EigenveilError)
    True"""

    def __init__(self, code: Code, message: str) -> None:
        if not isinstance(self, code.family):
            raise TypeError(f"{code} is not a code of {type(self).__name__}")
        super().__init__(message)
        self.code = code

    @property
    def exit_code(self) -> int:
        """Exit code of a command that fails with this error."""
        return self.code.exit_code

    @property
    def status(self) -> str:
        """Name of the gRPC status of a call that fails with this error."""
        return self.code.status


class RequestError(EigenveilError):
    """The request of an analyst or operator is invalid, or is not allowed now.

    >>> from eigenveil import Column, RequestError
    >>> try:
    ...     Column(name="age", unit="year", lower=120, upper=0)
    ... except RequestError as problem:
    ...     print(problem.code.value, problem.exit_code)
    bad-study 2"""


class PeerError(EigenveilError):
    """The other end broke the protocol.

    >>> from eigenveil import PeerError
    >>> from eigenveil.protocol.plan import plan_from_json
    >>> try:
    ...     plan_from_json(b"{}")  # what a federation sent as a plan
    ... except PeerError as problem:
    ...     print(problem.code.value, problem.status)
    protocol FAILED_PRECONDITION"""


class InternalError(EigenveilError):
    """This program has a bug, or its storage failed.

    >>> from eigenveil import InternalError
    >>> from eigenveil.numerics.encoding import check_exact
    >>> try:
    ...     check_exact(2.0**53)  # a product that floats would round
    ... except InternalError as problem:
    ...     print(problem.code.value, problem.exit_code)
    bug 71"""


class Code(Enum):
    """Stable codes, each with its class of error, gRPC status and exit code (proto/PROTOCOL.md)."""

    family: type[EigenveilError]
    status: str
    exit_code: int

    def __new__(cls, value: str, *rule: Any) -> Code:
        member = object.__new__(cls)
        member._value_ = value
        member.family, member.status, member.exit_code = rule
        return member

    @property
    def value(self) -> str:
        """Name in messages, logs and output."""
        return str(self._value_)

    BAD_STUDY = "bad-study", RequestError, "INVALID_ARGUMENT", 2  # The study is not valid.
    BAD_DATA = "bad-data", RequestError, "INVALID_ARGUMENT", 3  # The records do not match the study.
    BAD_CONFIG = "bad-config", RequestError, "INVALID_ARGUMENT", 4  # The configuration file is not valid.
    BAD_ARGUMENT = "bad-argument", RequestError, "INVALID_ARGUMENT", 2  # An argument is not valid.
    OVERFLOW = "plan-overflow", RequestError, "INVALID_ARGUMENT", 2  # Sums or noise could exceed int64.
    BUDGET = "budget-exhausted", RequestError, "RESOURCE_EXHAUSTED", 5  # The budget does not cover the cost.
    QUOTA = "quota-exhausted", RequestError, "RESOURCE_EXHAUSTED", 14  # The analyst has used up a quota.
    POLICY = "site-policy", RequestError, "FAILED_PRECONDITION", 6  # A site's rules do not allow the study.
    TOO_FEW_RECORDS = "too-few-records", RequestError, "FAILED_PRECONDITION", 7  # Below the minimum cohort.
    TOO_MANY_RECORDS = "too-many-records", RequestError, "FAILED_PRECONDITION", 7  # More than the study has.
    LOW_QUALITY_COLUMN = "low-quality-column", RequestError, "FAILED_PRECONDITION", 3  # Too many bad values.
    NOT_FOUND = "not-found", RequestError, "NOT_FOUND", 8  # The requested study, file or name does not exist.
    CONFLICT = "conflict", RequestError, "ALREADY_EXISTS", 9  # It exists already, or has changed.
    NOT_READY = "not-ready", RequestError, "UNAVAILABLE", 10  # It is not available yet.
    STUDY_FAILED = "study-failed", RequestError, "ABORTED", 11  # The study ended without a release.
    CANCELLED = "cancelled", RequestError, "CANCELLED", 12  # The study was cancelled.
    BAD_RELEASE = "bad-release", RequestError, "DATA_LOSS", 13  # The release is invalid, or was changed.
    UNSIGNED = "unsigned", RequestError, "FAILED_PRECONDITION", 15  # A required signature is missing.
    AUTHORIZATION = "authorization", RequestError, "INVALID_ARGUMENT", 16  # Signed for another plan.
    AUTHORIZATION_EXPIRED = "authorization-expired", RequestError, "FAILED_PRECONDITION", 17
    UNCONFIRMED = "unconfirmed-analyst", RequestError, "FAILED_PRECONDITION", 18  # Of an unconfirmed analyst.
    IDENTITY = "identity", PeerError, "PERMISSION_DENIED", 20  # Not the expected party.
    PROTOCOL = "protocol", PeerError, "FAILED_PRECONDITION", 21  # The protocol does not allow this message.
    BAD_CONTRIBUTION = "bad-contribution", PeerError, "INVALID_ARGUMENT", 22  # Values of no possible record.
    VERSION = "version", PeerError, "UNIMPLEMENTED", 23  # The peer's version is not supported.
    UNREACHABLE = "unreachable", PeerError, "UNAVAILABLE", 24  # The peer does not answer.
    STORAGE = "storage", InternalError, "INTERNAL", 70  # The database or disk of this machine failed.
    BUG = "bug", InternalError, "INTERNAL", 71  # This program has a bug; report it.


def error(code: Code, message: str) -> EigenveilError:
    """Return the error of the family that `code` belongs to; used to decode a peer's error."""
    return code.family(code, message)
