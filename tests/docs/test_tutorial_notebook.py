"""The tutorial's notebook runs as it stands against a real federation of three sites."""

from __future__ import annotations

import importlib.util
import re
from contextlib import chdir
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.integration.test_demo import started
from tests.repo.tree import ROOT

README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "notebooks" / "tutorial.md"
# What a person must type, from an empty machine to a picture; the rest of the page only looks.
NEEDED = (
    "import eigenveil",
    "eigenveil.connect(",
    "federation.study(",
    "study.submit(",
    "run.wait(",
    "plot.",
)


def docs_federation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kept", ROOT / "docs" / "kept_federation.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outputs(cells: list[Any], typed: str) -> list[Any]:
    """Outputs of the cell that contains `typed`."""
    (cell,) = [cell for cell in cells if cell.cell_type == "code" and typed in cell.source]
    shown: list[Any] = cell.outputs
    return shown


@pytest.mark.slow  # building the documentation runs the same cells
@pytest.mark.filterwarnings("ignore")  # of the libraries that run notebooks
def test_the_tutorial_runs_from_its_first_cell_to_its_picture(tmp_path: Path) -> None:
    import nbclient  # they take seconds to load: not where this test is only collected
    from myst_nb.core.read import read_myst_markdown_notebook  # type: ignore[import-untyped]

    notebook = read_myst_markdown_notebook(TUTORIAL.read_text(), None)
    folder = tmp_path / "demo-out"
    with docs_federation().kept(folder):
        client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": tmp_path}})
        client.execute()
        with chdir(tmp_path):
            exec(re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[0], {})
    assert started(folder) == []
    cells = notebook.cells
    for typed in NEEDED:
        assert any(typed in cell.source for cell in cells if cell.cell_type == "code"), typed
    # Beside the card only sentences about the connection may be printed: on a slow machine it may be lost.
    (waited,) = [one for one in outputs(cells, "run.wait()") if one.output_type != "stream"]
    assert waited.output_type == "display_data"  # the card that followed the run, as it was at the end
    assert "released" in waited.data["text/html"]
    assert "hospital-3" in waited.data["text/html"]
    assert "image/png" in outputs(cells, "plot.loadings(")[-1].data
    for typed in ("federation.sites", "federation.budget", "study.plan()", 'name="nuclei"'):
        (shown,) = outputs(cells, typed)
        assert "text/html" in shown.data, typed
