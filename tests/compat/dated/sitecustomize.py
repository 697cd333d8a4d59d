"""Programs as on another day, for federations that were made then: signatures, lists of authorities and
deadlines are in force on the day of a golden federation, and long expired today. TLS reads the system's clock
and not this one, so certificates that these programs make last a century.

Python runs this module at the start of every process that has this folder in PYTHONPATH: the programs of all
versions, and what they start."""

from __future__ import annotations

import datetime
import os
import time
from typing import Any

OFFSET = float(os.environ.get("EIGENVEIL_TESTS_OFFSET", "0"))  # seconds from today to that day
CENTURY = datetime.timedelta(days=36500)
REAL: Any = datetime.datetime
SECONDS, NANOSECONDS = time.time, time.time_ns


class _Kind(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, REAL)


class Dated(datetime.datetime, metaclass=_Kind):
    """Its `now` is on the other day; its values are those of the library."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return REAL.now(tz) + datetime.timedelta(seconds=OFFSET)


def _lasting(builder: type) -> None:
    given: Any = builder.not_valid_after  # type: ignore[attr-defined]

    def not_valid_after(self: Any, ends: datetime.datetime) -> Any:
        return given(self, ends + CENTURY)

    builder.not_valid_after = not_valid_after  # type: ignore[attr-defined]


if OFFSET:
    datetime.datetime = Dated  # type: ignore[misc]
    time.time = lambda: SECONDS() + OFFSET
    time.time_ns = lambda: NANOSECONDS() + int(OFFSET * 1e9)

from cryptography import x509  # noqa: E402 - it must see the clock

_lasting(x509.CertificateBuilder)
