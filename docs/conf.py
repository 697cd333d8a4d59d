"""The documentation site, made by `make docs` from the pages where they lie: nothing is copied.

The tree's top is the source folder, so that a page's links work in the repository and on the site alike."""

from __future__ import annotations

import sys
from pathlib import Path

from eigenveil import __version__

sys.path.insert(0, str(Path(__file__).parent))  # for the last two extensions, which are ours

project = "eigenveil"
author = "The eigenveil authors"
copyright = "The eigenveil authors, Apache-2.0"
release = version = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "site_links", "kept_federation"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "core/PRIVACY.md",
    "core/decisions/*.md",
    "proto/PROTOCOL.md",
    "deploy/OPERATIONS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
KEPT = {"docs", "core", "proto", "deploy", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
exclude_patterns = [
    *sorted(path.name for path in Path(__file__).parents[1].iterdir() if path.name not in KEPT),
    "docs/README.md",
    "docs/notebooks/demo-out",
]

# A heading is a place to link to, as repositories show Markdown.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
suppress_warnings = ["myst.header"]  # decisions and the changelog skip a level on purpose
nb_execution_mode = "force"
nb_execution_timeout = 300  # for one block, on a busy machine
nb_execution_raise_on_error = True
nb_merge_streams = True
autodoc_typehints = "description"
autodoc_type_aliases = {"ArrayLike": "ArrayLike"}  # a name for people, not the union behind it
default_role = "code"  # a word between single backticks, as in Markdown
autodoc_member_order = "bysource"
nitpicky = False

html_theme = "furo"
html_title = f"eigenveil {__version__}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_additional_pages = {"index": "to_the_start.html"}
templates_path = ["templates"]
html_theme_options = {"navigation_with_keys": True}
html_use_index = True
