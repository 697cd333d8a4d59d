"""Check of the built site: no page loads anything from outside, and links to it are listed.

An asset from elsewhere is an error; with `--online` every link to elsewhere is asked for as well."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

SITE = Path(__file__).resolve().parents[1] / "build" / "docs"
LOADS = {"src", "srcset", "poster", "data"}  # attributes that fetch, whatever element they stand on
OUTSIDE = ("http://", "https://", "//")


class Page(HTMLParser):
    """Loads and links of a page, outside the site."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: set[str] = set()
        self.linked: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is not None and value.startswith(OUTSIDE):
                if name in LOADS or (tag == "link" and name == "href"):
                    self.loaded.add(value)
                elif name == "href":
                    self.linked.add(value)


def stylesheets(site: Path) -> Iterator[str]:
    """Style sheets that load a font or picture from elsewhere."""
    for path in sorted(site.rglob("*.css")):
        text = path.read_text(encoding="utf-8")
        if any(f"url({quote}{outside}" in text for quote in ("", '"', "'") for outside in OUTSIDE):
            yield path.name


def unanswered(link: str) -> str | None:
    """Error of a link today; None if it answers."""
    try:
        request = urllib.request.Request(link, method="HEAD", headers={"User-Agent": "eigenveil-docs"})
        with urllib.request.urlopen(request, timeout=20):
            return None
    except OSError as problem:
        return f"{link}: {problem}"


def main() -> int:
    """Check build/docs; 1 if something is loaded from elsewhere, or a link does not answer."""
    pages = [Page(path.read_text(encoding="utf-8")) for path in sorted(SITE.rglob("*.html"))]
    loaded = sorted({one for page in pages for one in page.loaded}) + list(stylesheets(SITE))
    linked = sorted({one for page in pages for one in page.linked})
    print(f"{len(pages)} pages, {len(loaded)} assets from elsewhere, {len(linked)} links to elsewhere:")
    print(*(f"  {one}" for one in linked), sep="\n")
    dead = [message for link in linked if (message := unanswered(link))] if "--online" in sys.argv else []
    problems = [f"loaded from elsewhere: {one}" for one in loaded] + [f"no answer: {one}" for one in dead]
    print(*problems, sep="\n", file=sys.stderr)
    return 1 if problems or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
