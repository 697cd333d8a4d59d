"""A TOML text that would cost more than its length is refused before it is parsed."""

from __future__ import annotations

import tomllib
import tracemalloc
from typing import Any

import pytest
import tomli_w
from hypothesis import assume, example, given
from hypothesis import strategies as st

from eigenveil.errors import Code, RequestError
from eigenveil.study import checks
from eigenveil.study.checks import DEEPEST, MAX_WORD_LENGTH, MOST_CHARACTERS, parse_toml
from eigenveil.study.toml import parse_study

MANY = 5_000
FEW = 4_096  # keys, where a quarter of a million would take seconds
BOUNDED = "deep|key number|characters"
# Each takes gigabytes or Python's whole stack in `tomllib`, or time in the square of its length.
COSTLY = {
    "a dotted key": "a" + ".a" * MANY + " = 1",
    "a quoted dotted key": '"a"' + " . 'a'" * MANY + " = 1",
    "a header": "[a" + ".a" * MANY + "]",
    "a header of an array": "[[a" + ".a" * MANY + "]]",
    "arrays": "a = " + "[" * MANY,
    "arrays in lines": "a = " + "[\n" * MANY,
    "inline tables": "a = " + "{a = " * MANY,
    "dotted keys in inline tables": "a = " + "{a.a.a = " * MANY,
    "arrays and tables": "a = " + "[{a = " * MANY,
    "a dotted key below a header": f"[{'a.' * 9}a]\n{'a.' * 9}a = 1",
    "an array below a dotted key": f"{'a.' * 9}a = {'[' * 9}{']' * 9}",
    "long paths": "\n".join(f"k{n}{'.a' * (DEEPEST - 2)} = 1" for n in range(FEW)),
    "keys": "\n".join(f"k{n} = 1" for n in range(FEW + 1)),
    "keys of inline tables": f"a = [{'{a = 1},' * (FEW + 1)}]",
    "headers": "[[a]]\n" * (FEW + 1),
    "an integer": "a = " + "9" * (MAX_WORD_LENGTH + 1),
    "a hexadecimal integer": "a = 0x" + "f" * MAX_WORD_LENGTH,
    "a number": "a = 1." + "1" * (MAX_WORD_LENGTH + 1),
    "an exponent": "a = 1e" + "1" * (MAX_WORD_LENGTH + 1),
    "a bare key": "a" * (MAX_WORD_LENGTH + 1) + " = 1",
    "a comment": "#" * (MOST_CHARACTERS + 1),
}
# In front of what is too deep, each of them hides it from a scan that takes it for something else.
BEFORE = (
    "a = '''\n'[{\"\"\"'''''",
    'a = """\n"[{\'\'\'\\""""""',
    'a = "\\"#[{=."',
    "a = '\\'",
    '"[.#=\'" = 1',
    "'[.#=\"\\' = 1",
    "# '''\n# \"\"\"[[[",
    'a = ["#", """]""", \'\'\'{\'\'\'] # ]',
    'a = {b = "}", c.d = [{}, [\n"]" , # ]\n]]}',
    'a = """\\\n  """',
    "a = 1979-05-27 07:32:00.5Z",
    "[a.\"]\".'[']\nb.c = 1.5e-3",
    "[[a]]\n[a.b]\n[[a.b.c]]\nx.y = {}",
    "a = ''",
    'a = ""',
    'a = """"""',
    "a = ''''''",
)
LEAVES = (
    st.integers(-9, 9) | st.booleans() | st.floats(allow_nan=False) | st.text("'\"[]{}.=,#\n\\a", max_size=8)
)
NAMES = st.text("a.\"'[", max_size=3)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=30,
)
DOCUMENTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)


def depth(value: Any) -> int:
    """Nesting depth of tables and arrays."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def read(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None


@pytest.mark.parametrize("text", COSTLY.values(), ids=COSTLY)
def test_a_costly_text_is_refused_in_little_memory(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MOST_KEYS", FEW)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=BOUNDED):
            parse_toml(text)
        assert tracemalloc.get_traced_memory()[1] < 2**18
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("before", BEFORE)
def test_no_string_comment_or_quoted_key_hides_what_comes_after_it(before: str) -> None:
    assert read(before) is not None
    assert parse_toml(before) == tomllib.loads(before)
    for deep in ("z.z" + ".z" * DEEPEST + " = 1", "z = " + "[" * DEEPEST + "]" * DEEPEST):
        assert read(f"{before}\n{deep}") is not None
        with pytest.raises(ValueError, match="deep"):
            parse_toml(f"{before}\n{deep}")


@pytest.mark.parametrize(
    ("inside", "too_deep"),
    [
        ("a" + ".a" * (DEEPEST - 1) + " = 1", ".a"),
        ("[a" + ".a" * (DEEPEST - 2) + "]", ".a"),
        ("[[a" + ".a" * (DEEPEST - 3) + "]]", ".a"),
    ],
)
def test_the_deepest_that_is_read_is_one_level_above_what_is_refused(inside: str, too_deep: str) -> None:
    assert parse_toml(inside) == tomllib.loads(inside)
    assert depth(tomllib.loads(inside)) == DEEPEST
    with pytest.raises(ValueError, match="line 1 nests tables and arrays more than 16 deep"):
        parse_toml(inside.replace("a", "a" + too_deep, 1))


def test_depth_is_counted_from_each_comma_of_an_inline_table_anew() -> None:
    text = "t = {" + ", ".join(f"k{n}.a.b = [[{n}], {{c.d = 1}}]" for n in range(50)) + "}"
    assert parse_toml(text) == tomllib.loads(text)


@given(document=DOCUMENTS, lines=st.booleans())
@example(document={"a": {"b.c": [{"d": [[{}]]}]}}, lines=True)
def test_a_document_within_the_bounds_is_accepted(document: dict[str, Any], lines: bool) -> None:
    text = tomli_w.dumps(document, multiline_strings=lines)
    expected = read(text)
    assume(expected is not None)
    assert expected is not None
    if depth(expected) <= DEEPEST:
        assert parse_toml(text) == expected
    if depth(expected) > 2 * DEEPEST:  # a part of a header may be an array and its last table
        with pytest.raises(ValueError, match="deep"):
            parse_toml(text)


def refusal(text: str) -> str:
    """Refusal of a text by `parse_toml`; empty if none."""
    try:
        parse_toml(text)
    except ValueError as problem:
        return str(problem)
    return ""


@given(text=st.text("[]{}.=,\"'#\n\\a1 \r", max_size=60))
def test_any_text_is_read_as_by_tomllib_or_is_too_deep(text: str) -> None:
    expected, why = read(text), refusal(text)
    if not why:
        assert parse_toml(text) == expected
    else:
        assert expected is None or ("deep" in why and depth(expected) > DEEPEST)


@pytest.mark.parametrize(
    "piece", ['"', "'", '"""', "'''", "\\", '"\\', 'a="""\\n', "a='''a", "#", " ", "\r", "''a", '""a', "1"]
)
def test_time_does_not_grow_with_the_square_of_the_length(piece: str) -> None:
    assert "deep" not in refusal(piece * (2**17 // len(piece)))


def test_a_refused_text_names_the_line_that_nests_too_deep() -> None:
    with pytest.raises(RequestError, match="line 2 nests tables and arrays more than 16 deep") as refused:
        parse_study('name = "x"\n' + "a." * MANY + "a = 1")
    assert refused.value.code is Code.BAD_STUDY
