"""`make everything` counts what ran, resumes what did not, and its table names one tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.everything import __main__ as command
from tests.everything.results import page
from tests.everything.rows import ROWS, Row
from tests.everything.tree import TABLES, digest
from tests.repo.tree import ROOT


def shell(name: str, script: str, lacking: str = "") -> Row:
    return Row(name=name, command=("bash", "-c", script), promise=name, lacking=lambda: lacking)


def tried(folder: Path, *rows: Row, again: bool = False) -> tuple[bool, str]:
    table = folder / "CHECKED.md"
    return command.everything(
        rows, again=again, every=rows, build=folder, table=table
    ), table.read_text() if table.exists() else ""


def test_a_failed_row_fails_the_whole_and_an_absent_program_is_not_green(tmp_path: Path) -> None:
    good, bad = shell("good", "echo 12 passed"), shell("bad", "echo 1 failed; exit 1")
    passed, table = tried(tmp_path, good, bad, shell("absent", "exit 0", "needs an engine"))
    assert not passed
    assert "**FAILED: bad; not run: absent**" in table
    assert "green: 12 passed" in table
    assert "FAILED: 1 failed" in table
    assert "not run: needs an engine" in table
    passed, table = tried(tmp_path, good, shell("absent", "exit 0", "needs an engine"))
    assert passed
    assert "**not run: absent**" in table


def test_a_second_run_goes_on_where_the_first_one_ended(tmp_path: Path) -> None:
    count = f"echo once >> {tmp_path}/count; cat {tmp_path}/count | wc -l; echo done"
    for again, runs in ((False, 1), (False, 1), (True, 2)):
        tried(tmp_path, shell("counted", count), again=again)
        assert (tmp_path / "count").read_text().count("once") == runs


def test_the_digest_sees_every_change_but_those_of_the_tables(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    file, (table, matrix) = tmp_path / "a.py", (tmp_path / name for name in TABLES)
    seen = []
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for path, text in ((file, "1"), (file, "2"), (tmp_path / "b.py", ""), (table, "green"), (matrix, "[]")):
        path.write_text(text)
        seen.append(digest(tmp_path))
    file.chmod(0o755)
    seen.append(digest(tmp_path))
    assert len(set(seen)) == 4
    assert seen[2] == seen[3] == seen[4], "a table is no part of the tree that it is about"


def test_a_package_depends_on_what_it_imports_and_on_no_other_test_or_page(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    files = {
        "product.py": "", "tests/data.json": "",
        "tests/many/run.py": "from tests.help import first\nCOMMAND = 'python -m tests.started'",
        "tests/help/first.py": "import tests.second", "tests/second.py": "import benchmarks.used",
        "tests/started.py": "",
        "tests/many/test_run.py": "import tests.other", "tests/other.py": "", "docs/page.rst": "",
        "README.md": "", "benchmarks/speed.py": "", "benchmarks/used.py": "",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    seen, moved = digest(tmp_path, "tests.many"), set[str]()
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n# changed")
        if digest(tmp_path, "tests.many") != seen:
            moved.add(name)
        (tmp_path / name).write_text(text)
    unread = {"tests/many/test_run.py", "tests/other.py", "docs/page.rst", "README.md", "benchmarks/speed.py"}
    assert moved == set(files) - unread


def test_every_row_is_a_command_of_the_makefile_and_of_the_page() -> None:
    targets = (ROOT / "Makefile").read_text()
    for row in ROWS:
        assert f"\n{row.command[1]}:" in targets
    written = page("0" * 16, {})
    assert written.count("not run yet") == len(ROWS)
    assert "**still to run: demo, " in written
