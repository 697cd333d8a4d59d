"""Shift the clock of our programs to the day on which a golden federation was made: its signatures, lists of
authorities and deadlines are in force on that day, and long expired today. TLS reads the system's clock
and not this one, so certificates that these programs make are valid for decades before and after.

Python runs this module at the start of every process that has this folder in PYTHONPATH: the programs of all
versions, and what they start."""

from __future__ import annotations

import datetime
import importlib.machinery
import os
import sys
import time
import types
from collections.abc import Sequence
from types import ModuleType
from typing import Any

OFFSET = float(os.environ.get("EIGENVEIL_TESTS_OFFSET", "0"))  # seconds from today to that day
DECADES = datetime.timedelta(days=36500 // 4)
SECONDS, NANOSECONDS = time.time, time.time_ns
DEADLINES = ("grpc._channel", "grpc.aio._utils")  # the core of gRPC reads the system's clock


class Dated(datetime.datetime):
    """Its `now` is on the other day."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.datetime.now(tz) + datetime.timedelta(seconds=OFFSET)


class OurModules(importlib.machinery.PathFinder):
    """Our modules use `Dated`; libraries use the original class, since compiled ones check it."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> Any:
        kind = Undated if fullname in DEADLINES else DatedLoader
        ours = fullname in DEADLINES or fullname.startswith("eigenveil")
        found = super().find_spec(fullname, path, target) if ours else None
        if found is not None and isinstance(found.loader, importlib.machinery.SourceFileLoader):
            found.loader = kind(found.loader.name, found.loader.path)
        return found


class DatedLoader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if vars(module).get("datetime") is datetime.datetime:
            module.datetime = Dated  # type: ignore[attr-defined]


class Undated(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        module.time = types.SimpleNamespace(**vars(time) | {"time": SECONDS})  # type: ignore[attr-defined]


def _lasting(builder: type) -> None:
    for name, shift in (("not_valid_before", -DECADES), ("not_valid_after", DECADES)):
        setattr(builder, name, _shifted(getattr(builder, name), shift))


def _shifted(given: Any, shift: datetime.timedelta) -> Any:
    return lambda self, at: given(self, at + shift)


if OFFSET:
    sys.meta_path.insert(0, OurModules)
    time.time = lambda: SECONDS() + OFFSET
    time.time_ns = lambda: NANOSECONDS() + int(OFFSET * 1e9)

from cryptography import x509  # noqa: E402 - it comes after the clock

_lasting(x509.CertificateBuilder)
