"""A study, a file that is not there, and the error of a call, for tests of readers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eigenveil.errors import Code
from eigenveil.study.study import Column, Federation, Study
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig

STUDY = Study(
    name="bites", columns=tuple(Column(name=name, unit="", lower=0, upper=300) for name in ("a", "b", "c")),
    epsilon=1.0, delta=1e-6, components=1, federation=Federation(sites=("north",)),
)  # fmt: skip
ABSENT = RecordsConfig(source=Path("nowhere.csv"))


def refusal(call: Callable[[], Any]) -> BadRecords:
    """The error of a call: of the records, and in one line that begins like every other."""
    with pytest.raises(BadRecords) as found:
        call()
    assert found.value.code is Code.BAD_DATA
    assert len(str(found.value).splitlines()) == 1
    return found.value
