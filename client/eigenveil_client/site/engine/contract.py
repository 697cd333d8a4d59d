"""What a site asks of whatever holds the records of its studies: a process, its disk, or a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import Frame, Query
from eigenveil_client.records.quality import ColumnQuality


class Held(Protocol):
    """The records of one study, ready to be asked.

    `records` are the usable ones, `persons` are counted in the whole source before a missing value drops any.
    `file` is the digest of all of the source with its rules, and of the rows that the study sees: it changes
    when any of them does. `quality` is what each column is over all persons, in the study's order.
    """

    @property
    def records(self) -> int: ...

    @property
    def persons(self) -> int: ...

    @property
    def file(self) -> bytes: ...

    @property
    def quality(self) -> tuple[ColumnQuality, ...]: ...

    def answer(self, query: Query, frame: Frame | None) -> IntArray:
        """The exact sum over the records, as the frame shows them: the same integers whatever holds them.
        Shape: (query.length,).

        Privacy: none by itself; it goes to the barrier [P1].

        Raises:
            BadRecords: they cannot be read any more; they are to be closed, and loaded again.
        """

    def close(self) -> None:
        """Let the records go, and whatever holds them; may be repeated."""


class Engine(Protocol):
    """Loads records and holds them. One for a daemon, as long as it runs."""

    def check(self, plan: Plan, asked: Sequence[RoundQuery]) -> None:
        """Whether it can answer all that a plan may ask; nothing but the plan and settings is looked at.

        Raises:
            RequestError: code `site-policy`, it cannot.
        """

    def load(self, plan: Plan) -> Held:
        """The records of a study. Raises as `records.read`."""
