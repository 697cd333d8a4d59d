"""What is read whole is no larger than such a file can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil_common import files
from tests.support import refused


def test_a_file_that_is_read_whole_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_MIB", 2)
    path = tmp_path / "release.json"
    path.write_bytes(bytes(2 * files.MIB))
    assert files.read(path) == bytes(2 * files.MIB)
    path.write_bytes(bytes(2 * files.MIB + 1))
    with refused(Code.BAD_CONFIG, "has over 2 MiB"):
        files.read(path)
    with refused(Code.BAD_CONFIG, "has over 2 MiB"):
        files.read(Path("/dev/zero"))
