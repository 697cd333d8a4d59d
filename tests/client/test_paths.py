"""A path that cannot be used is the user's affair: one line names it and says what to do."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil_client.site.commands import main
from eigenveil_common.files import check_output, is_occupied, make_folder, path_exists, write_durably
from tests.client.commands import eigenveil
from tests.support import refused

STORAGE, CONFLICT = 70, 9
TOO_LONG = "x" * 300  # no file can have this name, whoever asks: tests may run as root
STUDY = Path(__file__).parents[2] / "deploy" / "config" / "study.example.toml"

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file where a folder would be needed."""
    path = tmp_path / "file"
    path.write_text("mine")
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", STUDY, "--data", "records.csv", "--out", "{file}/x"),
        ("simulate", STUDY, "--data", "records.csv", "--out", "{folder}/{long}"),
        ("compare", STUDY, "--data", "records.csv", "--out", "{folder}/none/x.csv"),
        ("compare", STUDY, "--data", "records.csv", "--out", "{file}/x.csv"),
        ("report", "release.json", "--out", "{folder}/none/x.html"),
        ("demo", "--out", "{file}/x"),
        ("demo", "--out", "{folder}/{long}"),
        ("enrol", "--join", "join.json", "--profile", "{folder}/{long}"),
        ("study", "list", "--profile", "{folder}/{long}"),
    ],
)
def test_unusable_path_is_named(
    words: tuple[object, ...], file: Path, tmp_path: Path, capfd: Capture
) -> None:
    named = [str(word).format(file=file, folder=tmp_path, long=TOO_LONG) for word in words]
    code = eigenveil([*named, "--json"])
    result = json.loads(capfd.readouterr().out)
    assert (code, result["error"]) == (STORAGE, Code.STORAGE.value)
    assert named[-1] in result["message"]


def test_a_site_is_not_made_in_a_file(file: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    for folder in (file, file / "below"):
        words = ["init", "--dir", str(folder), "--name", "a", "--records", "r.csv", "--json"]
        monkeypatch.setattr("sys.argv", ["eigenveil-site", *words])
        assert main.main() == STORAGE
        assert f"cannot make {folder}: " in json.loads(capfd.readouterr().out)["message"]


def test_a_table_does_not_replace_its_records(file: Path, tmp_path: Path, capfd: Capture) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    assert eigenveil(["compare", str(STUDY), "--data", str(file), "--out", str(link)]) == CONFLICT
    assert "would replace what it is made of" in " ".join(capfd.readouterr().err.split())
    assert file.read_text() == "mine"


def test_system_refusal_comes_with_advice(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused(Code.STORAGE, "make its folder first"):
        write_durably(tmp_path / "none" / "file", b"")
    with refused(Code.STORAGE, "name a file in it"):
        check_output(tmp_path)
    check_output(file)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    for name in ("mkdir", "exists"):
        monkeypatch.setattr(Path, name, forbidden)
    for act in (make_folder, path_exists, is_occupied):
        with refused(Code.STORAGE, f"{file}: Permission denied; name a place where you may write"):
            act(file)
