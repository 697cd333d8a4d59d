"""Files that trust rests on are refused if another user can change or replace them."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from eigenveil.errors import Code, RequestError
from eigenveil_common import files
from eigenveil_common.files import read_secret, write_secret
from eigenveil_common.trusted_files import check_trusted, database_files, trust_problems, trusted_entries
from tests.support import Patch, refused

OTHER = 54_321  # no user's number
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")


def problems(*paths: Path) -> list[str]:
    return [str(one) for one in trust_problems(paths)]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(0o700)
    for name in ("authorities.json", "site.toml", "ca.key", "state.db", "state.db-wal", "records.csv"):
        write_secret(folder / name, b"x")
    return folder


def test_files_that_only_their_owner_can_change_are_trusted(state: Path) -> None:
    assert problems(*trusted_entries(state), *database_files(state / "state.db"), state / "missing") == []
    assert trusted_entries(state / "missing") == []
    (state / "records.csv").chmod(0o666)
    assert problems(*trusted_entries(state)) == [], "others' files are nobody's concern here"


@pytest.fixture
def shared_group(monkeypatch: Patch) -> None:
    """Have the group of each file be one with others in it."""
    import grp

    group = SimpleNamespace(gr_gid=os.getegid(), gr_name="staff", gr_mem=["eve"])
    monkeypatch.setattr(grp, "getgrgid", lambda number: group)


@pytest.mark.usefixtures("shared_group")
@pytest.mark.parametrize("mode", [0o602, 0o620, 0o666])
@pytest.mark.parametrize("name", ["authorities.json", "site.toml", "ca.key", "state.db", "state.db-wal", "."])
def test_a_file_that_others_can_change_is_named_with_the_command(state: Path, name: str, mode: int) -> None:
    path = state / name
    path.chmod(mode | 0o100)
    every = (*trusted_entries(state), *database_files(state / "state.db"))
    assert problems(*every) == [f"others can change {path}; run: chmod go-w {path}"]
    with refused(Code.BAD_CONFIG, "chmod go-w"):
        check_trusted(every)


def test_folders_above_count_but_for_sticky_ones(state: Path) -> None:
    state.parent.chmod(0o777)
    assert problems(*trusted_entries(state)) == [
        f"others can change {state.parent}; run: chmod go-w {state.parent}"
    ]
    state.parent.chmod(0o1777)
    assert problems(*trusted_entries(state)) == []
    state.chmod(0o1777)
    assert problems(*trusted_entries(state)) != [], "there others can put a file that is not there yet"
    state.chmod(0o700)
    state.parent.chmod(0o700)


@pytest.mark.parametrize(("name", "members", "others", "good"), [
    ("root", [], [], True), ("root", ["eve"], [], False), ("x", [], [], False), ("root", [], ["eve"], False),
])  # fmt: skip
def test_files_may_belong_to_their_owners_own_group(
    state: Path, monkeypatch: Patch, name: str, members: list[str], others: list[str], good: bool
) -> None:
    """As with umask 002; a user whose group it is from the start is in it as well, and no list says so."""
    import grp

    user = pwd.getpwuid(os.geteuid())
    found = SimpleNamespace(
        gr_gid=user.pw_gid, gr_name=user.pw_name if name == "root" else name, gr_mem=members
    )
    from_the_start = [
        SimpleNamespace(pw_name=one, pw_uid=OTHER, pw_gid=user.pw_gid, pw_dir="/") for one in others
    ]
    monkeypatch.setattr(grp, "getgrgid", lambda number: found)
    monkeypatch.setattr(pwd, "getpwall", lambda: [user, *from_the_start])
    state.parent.chmod(0o770)
    assert (problems(*trusted_entries(state)) == []) is good
    state.parent.chmod(0o700)
    state.chmod(0o775)
    (state / "site.toml").chmod(0o664)
    assert (problems(*trusted_entries(state)) == []) is good
    (state / "site.toml").chmod(0o666)
    assert any(f"others can change {state / 'site.toml'}" in one for one in problems(*trusted_entries(state)))


def test_a_link_is_no_file_of_ours(state: Path) -> None:
    (state / "release.key").symlink_to(state / "ca.key")
    (there,) = problems(*trusted_entries(state))
    assert there.startswith(f"{state / 'release.key'} is a link to {state / 'ca.key'}; run: rm ")
    with pytest.raises(RequestError, match="contains a link"):
        read_secret(state / "release.key")


def test_folders_behind_a_linked_folder_must_be_trusted(state: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "inner").mkdir(parents=True)
    write_secret(elsewhere / "inner" / "a.json", b"x")
    (state / "way").symlink_to(elsewhere / "inner")
    assert problems(state / "way" / "a.json") == []
    elsewhere.chmod(0o777)
    assert problems(state / "way" / "a.json") == [
        f"others can change {elsewhere}; run: chmod go-w {elsewhere}"
    ]


def test_each_link_of_a_chain_counts_with_the_folders_on_its_own_way(state: Path, tmp_path: Path) -> None:
    """Neither the first folder nor the last: the one in between, in which others replace the second link."""
    last, between = tmp_path / "last", tmp_path / "between"
    for folder in (last, between):
        folder.mkdir()
    write_secret(last / "a.json", b"x")
    (between / "second").symlink_to(last)
    (state / "first").symlink_to(Path("..") / "between" / "second")
    assert problems(state / "first" / "a.json") == []
    between.chmod(0o777)
    assert problems(state / "first" / "a.json") == [f"others can change {between}; run: chmod go-w {between}"]


def test_a_step_back_starts_at_the_target_of_a_link(state: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "inner").mkdir(parents=True)
    write_secret(elsewhere / "a.json", b"x")
    (state / "way").symlink_to(elsewhere / "inner")
    elsewhere.chmod(0o777)
    assert problems(state / "way" / ".." / "a.json") == [
        f"others can change {elsewhere}; run: chmod go-w {elsewhere}"
    ]


@AS_ROOT
def test_a_link_of_another_user_in_a_folder_for_all_is_not_trusted(state: Path, tmp_path: Path) -> None:
    everybody = tmp_path / "everybody"
    everybody.mkdir()
    everybody.chmod(0o1777)
    (everybody / "link").symlink_to(state)
    assert problems(everybody / "link" / "site.toml") == []
    os.lchown(everybody / "link", OTHER, -1)
    (there,) = problems(everybody / "link" / "site.toml")
    assert there.startswith(f"{everybody / 'link'} belongs to #{OTHER}, who can change it")


def test_links_in_a_circle_are_refused_and_end(state: Path) -> None:
    (state / "a").symlink_to(state / "b")
    (state / "b").symlink_to(state / "a")
    with pytest.raises(RequestError, match="cannot look at"):
        problems(state / "a" / "site.toml")


@AS_ROOT
def test_another_users_file_is_not_trusted(state: Path, monkeypatch: Patch) -> None:
    os.chown(state / "site.toml", OTHER, -1)
    (there,) = problems(*trusted_entries(state))
    assert there.startswith(
        f"{state / 'site.toml'} belongs to #{OTHER}, who can change it; run: this as that user"
    )
    monkeypatch.setattr("eigenveil_common.trusted_files.os.geteuid", lambda: 1)
    (there,) = problems(*trusted_entries(state))
    assert there.startswith(f"{state / 'site.toml'} belongs to #{OTHER}, who can change it; run: sudo chown ")


@AS_ROOT
def test_a_secret_of_another_user_is_not_read(state: Path, monkeypatch: Patch) -> None:
    os.chown(state / "ca.key", OTHER, -1)
    assert read_secret(state / "ca.key") == b"x"
    monkeypatch.setattr("eigenveil_common.files.os.geteuid", lambda: 1)
    with pytest.raises(RequestError, match=f"belongs to #{OTHER}"):
        read_secret(state / "ca.key")


def test_a_secret_is_judged_as_it_was_opened(state: Path, monkeypatch: Patch) -> None:
    """Not by its name, under which another may lie by then."""
    (state / "ca.key").chmod(0o640)
    monkeypatch.setattr(Path, "stat", lambda self, **more: pytest.fail("its name was looked at"))
    with pytest.raises(RequestError, match="chmod 600"):
        read_secret(state / "ca.key")
    os.mkfifo(state / "pipe.key", 0o600)
    with pytest.raises(RequestError, match="is not a regular file"):
        read_secret(state / "pipe.key")


def test_a_database_check_opens_no_file(state: Path, monkeypatch: Patch) -> None:
    """To close a descriptor of it drops every lock that this process has on it."""
    monkeypatch.setattr("builtins.open", lambda *more, **named: pytest.fail("it was opened"))
    monkeypatch.setattr(os, "open", lambda *more, **named: pytest.fail("it was opened"))
    assert problems(*database_files(state / "state.db")) == []


# Files that are read whole.


def test_a_file_that_is_read_whole_has_a_bound(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(files, "MOST_MIB", 2)
    path = tmp_path / "release.zip"
    path.write_bytes(bytes(2 * files.MIB))
    assert files.read(path) == bytes(2 * files.MIB)
    path.write_bytes(bytes(2 * files.MIB + 1))
    with refused(Code.BAD_CONFIG, "has over 2 MiB"):
        files.read(path)
    with refused(Code.BAD_CONFIG, "has over 2 MiB"):
        files.read(Path("/dev/zero"))
