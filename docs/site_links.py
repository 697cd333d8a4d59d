"""Our pages and docstrings as Sphinx reads them: links to folders, Mermaid, and Markdown's plain bars."""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx import addnodes
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]


def name_folders(app: Sphinx, tree: nodes.document) -> None:
    """A folder, or a README that is no page, has no place on the site: its name stays, the link goes."""
    here = ROOT / Path(app.env.docname).parent
    for link in tree.findall(addnodes.pending_xref):
        target = (here / str(link.get("reftarget", "")).partition("#")[0]).resolve()
        if target.is_dir():
            link.replace_self(nodes.inline("", "", *link.children))


def escape(app: Sphinx, kind: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Bars of a norm and the underscore that ends a fitted attribute mean something else to docutils."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = line.split("`")
            parts[::2] = [
                re.sub(r"(?<=\w)_(?=,?\))", r"\\_", part.replace("|", r"\|")) for part in parts[::2]
            ]
            lines[i] = "`".join(parts)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_lexer("mermaid", TextLexer)  # drawn where pages of a repository are shown; here its words
    app.connect("doctree-read", name_folders)
    app.connect("autodoc-process-docstring", escape, priority=100)  # before sections become fields
    return {"parallel_read_safe": True}
