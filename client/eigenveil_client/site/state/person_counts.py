"""Noised number of persons of a site, from which its first settings are proposed [P34]. It is drawn once for
a state; the charge and the number are one transaction, so that a crash leaves both or neither."""

from __future__ import annotations

from collections.abc import Callable

from eigenveil.accounting.zcdp import Cost
from eigenveil.barrier import release_person_count
from eigenveil.errors import Code, RequestError
from eigenveil.noise.source import NoiseSource, OsNoise
from eigenveil.numerics.encoding import digest
from eigenveil_common.files import failpoint
from eigenveil_common.storage.database import Connection, Database
from eigenveil_common.storage.ledger_store import ExtraWrite, LedgerStore

SCHEMA = """
CREATE TABLE person_counts (
  study TEXT PRIMARY KEY,
  noised INTEGER NOT NULL,
  micro_rho INTEGER NOT NULL,
  at INTEGER NOT NULL
) STRICT;
"""
STUDY = digest("person-count", {})  # in place of a study's digest, and of its query's: no message left for it
ROUND = 0
LABEL = "number of persons, noised"


class PersonCounts:
    """The noised number in `database` (whose schema includes `SCHEMA`), charged to `ledger`."""

    def __init__(self, database: Database, ledger: LedgerStore, clock: Callable[[], int]) -> None:
        self._database = database
        self._ledger = ledger
        self._clock = clock

    def stored(self) -> tuple[int, int] | None:
        """Return the number and its cost in micro-rho; None if none was drawn."""
        rows = self._database.rows("SELECT noised, micro_rho FROM person_counts WHERE study = ?", (STUDY,))
        return (int(rows[0]["noised"]), int(rows[0]["micro_rho"])) if rows else None

    def noised(
        self,
        count: Callable[[], int],
        micro_rho: int,
        noise: NoiseSource | None = None,
        also: ExtraWrite = None,
    ) -> tuple[int, float]:
        """Return the noised number of persons and the standard deviation of its noise, durably charged. The
        first call draws it from `count()` at the cost `micro_rho`; others return the same number for ever.
        `also` runs within the transaction that reserves the cost.

        The cost is reserved after `count()`: a ledger reserves it once, and a failure to read the records
        leaves nothing reserved. What a crash left reserved is used by the next call.

        Raises RequestError: code `budget-exhausted`; nothing was drawn. Or as `count`, or `also`."""
        self._ledger.refresh()
        stored, persons = self.stored(), 0
        if stored is not None:
            micro_rho = stored[1]
        elif (left := self._ledger.ledger.reserved.get(STUDY)) is not None:
            micro_rho, persons = left.micro_rho, count()
        else:
            self._ledger.check(STUDY, Cost(micro_rho=micro_rho), gaussian=True)
            persons = count()
            self._reserve(micro_rho, also)
        journal = _Journal(self, micro_rho)
        found = release_person_count(persons, micro_rho, journal=journal, noise=noise or OsNoise())
        self._ledger.settle(STUDY)
        return found

    def _reserve(self, micro_rho: int, also: ExtraWrite) -> None:
        try:
            self._ledger.reserve(STUDY, Cost(micro_rho=micro_rho), also=also, gaussian=True)
        except RequestError as problem:
            if problem.code is not Code.CONFLICT:  # another process has reserved it meanwhile
                raise

    def seal(self, noised: int, micro_rho: int) -> int:
        """Charge the cost and store the number in one transaction, and return the number that is stored: of
        another process, if that was first. Raises PeerError, RequestError: as `Ledger.charge`."""

        def also(change: Connection) -> None:
            failpoint("person-count-sealing")
            if change.execute("SELECT 1 FROM person_counts WHERE study = ?", (STUDY,)):
                return
            row = {"study": STUDY, "noised": noised, "micro_rho": micro_rho, "at": self._clock()}
            change.insert("person_counts", row)

        self._ledger.charge(STUDY, ROUND, STUDY, Cost(micro_rho=micro_rho), also=also)
        failpoint("person-count-sealed")
        stored = self.stored()
        assert stored is not None
        return stored[0]


class _Journal:
    def __init__(self, counts: PersonCounts, micro_rho: int) -> None:
        self._counts = counts
        self._micro_rho = micro_rho

    def sealed(self) -> int | None:
        stored = self._counts.stored()
        return None if stored is None else stored[0]

    def seal(self, noised: int) -> int:
        return self._counts.seal(noised, self._micro_rho)
