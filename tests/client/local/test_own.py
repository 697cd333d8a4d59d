"""`eigenveil compare --with`: an algorithm of the user's own, and what is said of a file that holds none."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenveil.errors import RequestError
from eigenveil_client.local.algorithm_selection import load
from tests.client.commands import eigenveil
from tests.support import Capture, Patch, a_plan

PAGE = Path(__file__).parents[3] / "docs" / "own-algorithm.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
STUDY = """
name = "compared"
components = 1
privacy = {epsilon = 4.0, delta = 1e-6}
federation = {sites = ["north", "south"]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A folder with a study, its records, and the algorithm that the page shows."""
    columns = [f'[[columns]]\nname = "{name}"\nunit = "mm"\nlower = -9\nupper = 9' for name in "abc"]
    (tmp_path / "study.toml").write_text("\n".join([STUDY, *columns]))
    values = np.random.default_rng(3).normal(size=(800, 3)) * [3.0, 1.0, 0.5]
    np.savetxt(tmp_path / "records.csv", values, delimiter=",", header="a,b,c", comments="")
    (tmp_path / "one_gram.py").write_text(BLOCKS[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(capfd: Capture, *arguments: str) -> tuple[int, Any]:
    base = ["compare", "study.toml", "--data", "records.csv", "--algorithms", "gauss-cov,oja", "--json"]
    code = eigenveil([*base, *arguments])
    return code, json.loads(capfd.readouterr().out.strip().splitlines()[-1])


@pytest.mark.usefixtures("folder")
def test_a_custom_algorithm_is_compared_and_marked(capfd: Capture) -> None:
    code, value = answer(capfd, "--with", "one_gram.py", "--repeat", "2")
    rows = {row["algorithm"]: row for row in value["rows"]}
    mine, named = rows["one_gram"], rows["gauss-cov"]
    assert (code, mine["custom"], named["custom"], mine["private"]) == (0, True, False, True)
    assert mine["sin_angle"] < 0.2
    assert (mine["rounds"], mine["delta"]) == (6, named["delta"])
    assert mine["epsilon"] == pytest.approx(named["epsilon"], rel=1e-4)
    assert 0 < mine["micro_rho"] < named["micro_rho"]
    assert mine["frobenius"] is not None
    eigenveil(
        ["compare", "study.toml", "--data", "records.csv", "--algorithms", "zero", "--with", "one_gram.py"]
    )
    shown = capfd.readouterr()
    assert "one_gram (your own)" in shown.out
    assert "one_gram is a custom algorithm, which no federation runs" in " ".join(shown.err.split())


@pytest.mark.usefixtures("folder")
def test_the_page_runs_as_it_stands(folder: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.syspath_prepend(str(folder))
    (folder / "page.py").write_text("\n".join(BLOCKS[1:]))
    names = runpy.run_path(str(folder / "page.py"))
    assert names["mine"].properties.pure
    assert names["run"].result.components.shape == (1, 3)
    assert "custom:one_gram" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_a_custom_algorithm_is_refused_for_a_federation(capfd: Capture) -> None:
    code, value = answer(capfd, "--federation", "--with", "one_gram.py")
    assert (code, "is for simulations only" in value["message"]) == (2, True)


GENERATOR = "def {}(plan):\n    yield 1\n"
WRONG = {
    "no file": (None, "cannot read"), "no Python": ("def f(plan)\n", r"line 1: not valid Python"),
    "an error in it": ("a = 1\nb = a / 0\n", r"line 2: ZeroDivisionError: division by zero"),
    "no text": ("\0", "null bytes"), "nothing in it": ("a = 1\n", "has no generator function; write"),
    "no yield": ("def f(plan):\n    return 1\n", "has no generator function"),
    "only what it imports": ("from eigenveil.algorithms import locate\n", "has no generator function"),
    "only helpers": (GENERATOR.format("_f"), "has no generator function"),
    "several": (GENERATOR.format("f") + GENERATOR.format("g"), r"f and g: name one, such as .*wrong.py:f"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_holds_no_one_algorithm_is_explained(name: str, tmp_path: Path) -> None:
    content, message = WRONG[name]
    path = tmp_path / "wrong.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(RequestError, match=message):
        load(str(path))


def test_one_of_several_may_be_named(tmp_path: Path) -> None:
    path = tmp_path / "many.py"
    stated = "from eigenveil.algorithms import *\nmine = CustomAlgorithm(steps=g, name='mine')\n"
    path.write_text(GENERATOR.format("_f") + GENERATOR.format("g") + stated)
    assert load(str(path)).name == "mine"  # g is behind it
    assert load(f"{path}:_f").name == "_f"
    with pytest.raises(RequestError, match="no generator function 'h'; it has: mine, _f"):
        load(f"{path}:h")


@pytest.mark.parametrize(("body", "message"), [
    ("    yield\n    plan.nothing\n", "own.py, line 4: AttributeError: 'Plan' object has no attribute"),
    ("    yield PricedQuery(query=Count(), micro_rho=0)\n", "own.py, line 3: .* below one micro-rho"),
    ("    return (yield from _two(plan))\ndef _two(plan):\n    1 / 0\n    yield\n", "own.py, line 5: Zero"),
])  # fmt: skip
def test_an_exception_in_it_names_the_line(body: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("from eigenveil.algorithms import *\ndef f(plan):\n" + body)
    steps = load(str(path)).steps(a_plan())
    with pytest.raises(RequestError, match=message):
        list(steps)


@pytest.mark.usefixtures("folder")
def test_one_that_fails_is_a_line_beside_those_that_ended(capfd: Capture) -> None:
    Path("bad.py").write_text("def bad(plan):\n    yield 3\n")
    code, value = answer(capfd, "--with", "bad.py")
    outcomes = {row["algorithm"]: row["outcome"] for row in value["rows"]}
    assert (code, outcomes["gauss-cov"]) == (0, "")
    assert outcomes["bad"] == "bad yielded int; yield PricedQuery(query=..., micro_rho=...)"
