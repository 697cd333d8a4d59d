"""What only operators read: who is enrolled, who did what, and what was refused."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.errors import Code, RequestError
from eigenveil.identity import CALLERS, Role
from eigenveil.study.checks import check_readable
from eigenveil_server.console.desk import Books
from eigenveil_server.pki.registry import Registry
from eigenveil_server.storage.consents import Standing

PAGE = 50
LONGEST_REASON = 200
ENDED = ("failed", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody who is enrolled: a site, an analyst or an operator."""

    role: str
    name: str
    ends: float
    denied: bool
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the record of who did what; `at` in Unix seconds."""

    number: int
    at: float
    kind: str
    subject: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decline:
    """A site that declined a study (`round` is 0), or to answer one of its rounds, which count from 1."""

    study: str
    name: str
    round: int
    site: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A study that ended without a release."""

    study: str
    name: str
    analyst: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """Studies without a release and sites without an answer, the latest first; calls by their code."""

    endings: tuple[Ending, ...]
    declines: tuple[Decline, ...]
    calls: dict[str, int]


def people(registry: Registry) -> list[Person]:
    """Everybody who has enrolled."""
    return [
        Person(role=one.role, name=one.name, ends=one.expires_at / 1000, denied=one.denied, key=one.key)
        for one in registry.enrolled()
    ]


def person(registry: Registry, role: str, name: str) -> Person:
    """One of them.

    Raises:
        RequestError: code `not-found`.
    """
    for one in people(registry):
        if (one.role, one.name) == (role, name):
            return one
    raise RequestError(Code.NOT_FOUND, "nobody of that name has enrolled")


def role_of(text: str) -> Role:
    """A role that can enrol.

    Raises:
        RequestError: code `not-found`.
    """
    for role in CALLERS:
        if role.value == text:
            return role
    raise RequestError(Code.NOT_FOUND, "there is no such role")


def checked_reason(text: str) -> str:
    """Why somebody was denied, for the record.

    Raises:
        RequestError: it is empty, too long, or not one line of readable text.
    """
    reason = " ".join(text.split())
    if not reason:
        raise RequestError(Code.BAD_ARGUMENT, "say why, in a few words: the record keeps it")
    check_readable("the reason", reason, LONGEST_REASON)
    return reason


def entries(books: Books, before: int) -> list[Entry]:
    """A page of the record, the latest first, from below the number `before`."""
    rows = books.reader.rows(
        "SELECT id, at, kind, subject, detail FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?",
        (before, PAGE),
    )
    return [
        Entry(
            number=row["id"],
            at=row["at"] / 1000,
            kind=row["kind"],
            subject=row["subject"],
            detail=row["detail"],
        )
        for row in rows
    ]


def refusals(books: Books, calls: dict[str, int]) -> Refusals:
    """The latest of each."""
    declined = books.reader.rows(
        "SELECT d.study, s.name, d.round, d.site, d.reason FROM ("
        "SELECT study, round + 1 AS round, site, declined AS reason FROM answers WHERE declined IS NOT NULL "
        "UNION ALL SELECT study, 0, site, reason FROM consents WHERE standing = ?) d "
        "JOIN studies s ON s.digest = d.study ORDER BY s.submitted_at DESC, d.round DESC, d.site LIMIT ?",
        (Standing.DECLINED.value, PAGE),
    )
    ended = books.reader.rows(
        "SELECT digest, name, analyst, failure FROM studies WHERE state IN (?, ?) "
        "ORDER BY ended_at DESC LIMIT ?",
        (*ENDED, PAGE),
    )
    return Refusals(
        endings=tuple(
            Ending(study=row["digest"], name=row["name"], analyst=row["analyst"], why=row["failure"])
            for row in ended
        ),
        declines=tuple(
            Decline(
                study=row["study"],
                name=row["name"],
                round=row["round"],
                site=row["site"],
                reason=row["reason"],
            )
            for row in declined
        ),
        calls=calls,
    )
