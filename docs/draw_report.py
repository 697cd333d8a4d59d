"""`make picture`: run the demonstration and draw README's picture of its report, docs/report.png.

The release that the picture shows is stored beside it, docs/report.zip. The picture states, in a text
field of its own, a digest of the page that it was drawn from. `stale` renders that release with today's
program, so a picture of an older program is found without a browser."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from eigenveil.planning.choose import make_plan
from eigenveil.reporting.report import render
from eigenveil.reporting.verify import load_release
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Trust
from eigenveil.study.toml import study_from_dict
from eigenveil_client.demo.layout import demo_study

DOCS = Path(__file__).resolve().parent
PICTURE, RELEASE = DOCS / "report.png", DOCS / "report.zip"
FIELD = "page"
FIGURE = re.compile(
    r'"data:image/[^"]*"'
)  # drawn from numbers of the page; their last bits are the machine's
SIZE = {"width": 1000, "height": 1500}
MEND = "; `make picture` draws it anew"


@cache
def page(release: Path = RELEASE) -> str:
    """Return the report of the stored release as today's program writes it."""
    signed = load_release(release.read_bytes())
    return render(signed, public_key=signed.public_key.hex())


def digest(text: str) -> str:
    """Return the SHA-256 of a page without its figures, in hex."""
    return hashlib.sha256(FIGURE.sub('""', text).encode()).hexdigest()


def stale(picture: Path = PICTURE, release: Path = RELEASE) -> str:
    """Return why the picture is not of today's program, or an empty string."""
    document = load_release(release.read_bytes()).document
    stored = document["plan"]
    names = {name: stored[name] for name in ("federation", "submission", "analyst")}
    shown = study_from_dict(stored["study"])
    default = demo_study(3, Algorithm.AUTO, shown.components, shown.epsilon, Trust.CENTRAL)
    if shown != default or make_plan(default, **names).digest != document["plan_digest"]:
        return f"the demonstration asks another study or makes another plan than {release.name}{MEND}"
    with Image.open(picture) as image:
        drawn = image.info.get(FIELD, "")
    return "" if drawn == digest(page(release)) else f"the page differs from that of {picture.name}{MEND}"


def draw() -> None:
    """Run the demonstration, store its release, and draw the first screens of its report."""
    from playwright.sync_api import sync_playwright  # takes a second to load, and only drawing needs it

    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("This needs Chromium; on Debian and Ubuntu: sudo apt install chromium")
    with TemporaryDirectory() as folder:
        out, html = Path(folder) / "demo", Path(folder) / "report.html"
        subprocess.run([Path(sys.executable).with_name("eigenveil"), "demo", "--out", out], check=True)
        RELEASE.write_bytes((out / "release.zip").read_bytes())
        page.cache_clear()
        html.write_text(page())
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            shown = browser.new_page(viewport=SIZE)
            shown.goto(html.as_uri())
            shown.screenshot(path=PICTURE)
            browser.close()
    fields = PngInfo()
    fields.add_text(FIELD, digest(page()))
    with Image.open(PICTURE) as image:
        flat = image.convert("P", palette=Image.Palette.ADAPTIVE)
    flat.save(PICTURE, pnginfo=fields, optimize=True)


if __name__ == "__main__":
    draw()
