"""What an analyst sees of a federation: its sites, what each states, and its dictionary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from eigenveil.dictionary.admission import Directory
from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.statement import SiteStatement, statement_from_proto
from eigenveil.errors import Code, PeerError
from eigenveil.study.study import NAME, Study
from eigenveil_proto.v1 import eigenveil_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSite:
    """An enrolled site, what it states of itself (None: nothing) and the hour in which it was heard last
    (None: not since the coordinator's start)."""

    name: str
    statement: SiteStatement | None
    seen: datetime | None

    @property
    def offers(self) -> tuple[str, ...] | None:
        return None if self.statement is None else self.statement.offers


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationView:
    """All of it at one moment."""

    name: str
    sites: tuple[ListedSite, ...]
    dictionary: Dictionary | None
    approval_seconds: float
    start_seconds: float

    def asked(self, study: Study) -> dict[str, Any]:
        """At which of its sites a person decides, as these state, and how long it waits for them: seconds."""
        asking = {site.name for site in self.sites if site.statement is not None and site.statement.asks}
        return {
            "sites": [name for name in study.federation.sites if name in asking],
            "approval_seconds": max(self.approval_seconds, study.federation.deadline_seconds),
            "start_seconds": self.start_seconds,
        }

    @property
    def directory(self) -> Directory:
        """What a study is held against."""
        return Directory(
            federation=self.name,
            sites={site.name: site.statement for site in self.sites},
            columns=None if self.dictionary is None else tuple(self.dictionary.usable()),
            approval_seconds=self.approval_seconds,
        )


def listed(rows: Iterable[pb.SiteRow], after: str) -> list[ListedSite]:
    """Rows of an answer, all behind the name `after`.

    Raises:
        PeerError: code `protocol`, they are no sites, in no order, or state what cannot be shown.
    """
    found = []
    for row in rows:
        if NAME.fullmatch(row.name) is None or row.name <= after:
            raise PeerError(Code.PROTOCOL, "the coordinator lists sites that are none, or twice")
        after = row.name
        stated = statement_from_proto(row.statement) if row.HasField("statement") else None
        found.append(ListedSite(name=row.name, statement=stated, seen=_hour(row.seen_unix_ms)))
    return found


def _hour(milliseconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None
    except (ValueError, OverflowError, OSError) as problem:
        raise PeerError(Code.PROTOCOL, "the coordinator names an hour that is none") from problem
