"""Tables [column.NAME] are set and removed, and every other line of site.toml stays as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import Code
from eigenveil.study.checks import parse_toml
from eigenveil_client.site.mapping.toml_tables import (
    blocks,
    key_lines,
    question_line,
    table_text,
    with_columns,
    with_number,
    with_tables,
)
from tests.support import refused

TEXT = '''# our file
name = "a"   # the name
columns = ["x", "sex=f"]  # what studies may use

[records]
# a SELECT
sql = """
SELECT [column.nothing] -- no table
[column.neither]
"""

[engine]
memory_mib = 64

# x is theirs
[column.x]
from = "X"  # as exported

[column."sex=f"]
from = "sex"
values = {w = 1, m = 0}
# Not sure: Is 'HB' the dictionary's hemoglobin? From here: eigenveil-site map --set "HB=hemoglobin"
'''
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
VALUES = st.one_of(
    st.text(max_size=8), st.booleans(), st.integers(-(2**40), 2**40), st.floats(allow_nan=False, width=32),
    st.lists(st.text(max_size=5), max_size=40), st.dictionaries(st.text(max_size=4), st.integers(0, 9),
    max_size=3),
)  # fmt: skip


def test_blocks_are_all_lines_of_a_file() -> None:
    found = list(blocks(TEXT))
    assert [line for one in found for line in one.lines] == TEXT.split("\n")
    assert [one.name for one in found if one.name] == ["x", "sex=f"]


@given(NAMES, st.dictionaries(st.from_regex(r"\A[a-z_]{1,8}\Z"), VALUES, max_size=4))
def test_a_table_is_read_as_it_was_written(name: str, keys: dict[str, object]) -> None:
    assert parse_toml(table_text(name, keys, ["why"])) == {"column": {name: keys}}
    long = "SELECT 1\nFROM 'a\"b'"
    assert parse_toml(key_lines({"sql": long})) == {"sql": long}


@given(NAMES, st.sampled_from(["x", "sex=f", "other"]))
def test_other_lines_stay(name: str, gone: str) -> None:
    changed = with_tables(TEXT, {name: table_text(name, {"from": "Y"})}, {gone} - {name})
    before, after = parse_toml(TEXT), parse_toml(changed)
    wanted = {key: value for key, value in before["column"].items() if key != gone or key == name}
    assert after["column"] == wanted | {name: {"from": "Y"}}
    assert {k: v for k, v in after.items() if k != "column"} == {
        k: v for k, v in before.items() if k != "column"
    }
    kept = TEXT[: TEXT.index("# x is theirs")]
    assert changed.startswith(kept)
    assert ("# x is theirs" in changed) == (name != "x" != gone)


HOSTILE = 'Glukose\x85factor = 100 #\u2028x\x7f\n\u202e\'"""'


def test_a_header_writes_no_setting_and_ends_no_text() -> None:
    """Signs at which some readers end a line, and marks of a text of several lines, in a comment."""
    question = question_line(f"{HOSTILE}=glucose", f"Is {HOSTILE} glucose?")
    text = with_tables(TEXT + question + "\n", {"y": table_text("y", {"from": HOSTILE}, [HOSTILE])})
    assert len(question.splitlines()) == 1
    after = parse_toml(text)["column"]
    assert after == parse_toml(TEXT)["column"] | {"y": {"from": HOSTILE}}
    removed = with_tables(text, {}, {"x", "y"}, [HOSTILE])
    assert parse_toml(removed)["column"].keys() == {"sex=f"}
    assert question not in removed


def test_a_comment_below_a_table_stays_when_the_table_goes() -> None:
    assert TEXT.splitlines()[-1] in with_tables(TEXT, {}, {"x", "sex=f"})


def test_a_table_that_is_written_otherwise_is_refused() -> None:
    for text in ("column.x = {from = 'X'}\n", "[column]\nx = {from = 'X'}\n"):
        with refused(Code.BUG, "beyond what was asked"):
            with_tables(text, {}, {"x"})


@pytest.mark.parametrize("text", [TEXT, "[engine]  # ours\nkind = 'auto'", "memory_mib = 5 # no", ""])
def test_a_number_is_set_and_all_else_stays(text: str) -> None:
    changed = with_number(with_number(text, "memory_mib", 128, "engine"), "minimum_records", 7)
    wanted = parse_toml(text) | {"minimum_records": 7}
    assert parse_toml(changed) == wanted | {"engine": wanted.get("engine", {}) | {"memory_mib": 128}}
    again = with_number(changed, "minimum_records", 9)
    assert again == changed.replace("minimum_records = 7", "minimum_records = 9")


def test_an_answered_question_goes() -> None:
    assert question_line("HB=hemoglobin", "Is 'HB' the dictionary's hemoglobin?") == TEXT.splitlines()[-1]
    table = {"hemoglobin": table_text("hemoglobin", {"from": "HB"})}
    assert "Not sure" not in with_tables(TEXT, table, mapped=["HB"])
    assert "Not sure" in with_tables(TEXT, table, mapped=["H"])


def test_the_columns_of_studies_follow() -> None:
    changed = with_columns(TEXT, ["y"], {"x"})
    assert parse_toml(changed)["columns"] == ["sex=f", "y"]
    assert "# what studies may use" in changed
    many = with_columns(TEXT, [f"column {i}" for i in range(50)], set())
    assert with_columns(many, [], {f"column {i}" for i in range(50)}) == TEXT
    for text in ('columns = ["*"]\n', 'name = "a"\n'):
        assert with_columns(text, ["y"], {"x"}) == text
    with refused(Code.BAD_CONFIG, "no column would be left"):
        with_columns(TEXT, [], {"x", "sex=f"})


def test_a_change_of_other_settings_is_refused() -> None:
    with refused(Code.BUG, "beyond what was asked"):
        with_tables(TEXT, {"y": '[column.y]\nfrom = "Y"\n[engine2]\n'})


@pytest.mark.parametrize("end", ["", "\n", "\n\n\n"])
def test_setting_a_table_again_changes_nothing(end: str) -> None:
    table = {"y": table_text("y", {"from": "Y"}, ["why"])}
    once = with_tables(TEXT.rstrip() + end, table)
    assert with_tables(once, table) == once
