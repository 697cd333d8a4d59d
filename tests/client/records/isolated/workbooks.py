"""Workbooks of one sheet that no library here writes: an .ods put together by hand, and two sample files."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from eigenveil_client.records.tables.source import RecordsConfig

Cell = str | float
OPEN_DOCUMENT = "application/vnd.oasis.opendocument.spreadsheet"
MANIFEST = (
    '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">'
    f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{OPEN_DOCUMENT}"/></manifest:manifest>'
)
CONTENT = (
    '<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body><office:spreadsheet>'
    '<table:table table:name="s">{}</table:table></office:spreadsheet></office:body>'
    "</office:document-content>"
)


def rows() -> list[list[Cell]]:
    found: list[list[Cell]] = [["a", "b", "c"]]
    return found + [[float(n % 7), float(n % 5), float(n)] for n in range(60)]


def ods(path: Path, repeated: int = 1) -> RecordsConfig:
    """An OpenDocument sheet, whose last row says that it stands there so many times."""
    *lines, last = ("".join(map(_element, row)) for row in rows())
    table = "".join(f"<table:table-row>{line}</table:table-row>" for line in lines)
    table += f'<table:table-row table:number-rows-repeated="{repeated}">{last}</table:table-row>'
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("mimetype", OPEN_DOCUMENT)
        out.writestr("META-INF/manifest.xml", MANIFEST)
        out.writestr("content.xml", CONTENT.format(table), zipfile.ZIP_DEFLATED)
    return RecordsConfig(source=path)


def _element(cell: Cell) -> str:
    if isinstance(cell, str):
        return f'<table:table-cell office:value-type="string"><text:p>{cell}</text:p></table:table-cell>'
    return f'<table:table-cell office:value-type="float" office:value="{cell}"/>'


def sample(path: Path) -> RecordsConfig:
    """The sample file of that ending, which holds `rows()`."""
    shutil.copy(Path(__file__).with_name(f"sample{path.suffix}"), path)
    return RecordsConfig(source=path)
