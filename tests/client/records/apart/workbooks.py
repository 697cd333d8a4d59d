"""Workbooks that nothing here can write, put together by hand: .ods, .xlsb and .xls of one sheet."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from eigenveil_client.records.tables.source import RecordsConfig

Cell = str | float
SECTOR, STREAM = 512, 4096  # bytes; a smaller stream would lie among the small ones
END, FREE, FAT = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD
RELATIONS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship '
    'Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" '
    'Target="worksheets/sheet1.bin"/></Relationships>'
)
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
    """A header and sixty records."""
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


def xlsb(path: Path) -> RecordsConfig:
    """Excel's binary parts in a zip file: [MS-XLSB] 2.3.1 and 2.4."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("xl/_rels/workbook.bin.rels", RELATIONS)
        sheet = struct.pack("<II", 0, 1) + _wide("rId1") + _wide("s")
        out.writestr("xl/workbook.bin", _part([(156, sheet), (144, b""), (132, b"")]))
        out.writestr("xl/worksheets/sheet1.bin", _part(_binary_sheet(rows())))
    return RecordsConfig(source=path)


def _binary_sheet(cells: Sequence[Sequence[Cell]]) -> Iterable[tuple[int, bytes]]:
    yield 129, b""
    yield 148, struct.pack("<IIII", 0, len(cells) - 1, 0, 2)
    yield 145, b""
    for number, row in enumerate(cells):
        yield 0, struct.pack("<I", number) + bytes(13)
        for column, cell in enumerate(row):
            if isinstance(cell, str):
                yield 6, struct.pack("<II", column, 0) + _wide(cell)
            else:
                yield 5, struct.pack("<IId", column, 0, cell)
    yield 146, b""


def _wide(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode("utf-16-le")


def _part(records: Iterable[tuple[int, bytes]]) -> bytes:
    return b"".join(_seven_bits(kind) + _seven_bits(len(data)) + data for kind, data in records)


def _seven_bits(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])


def xls(path: Path) -> RecordsConfig:
    """A BIFF8 workbook in a compound file: [MS-XLS] 2.4, [MS-CFB] 2."""
    path.write_bytes(_compound("Workbook", _biff(rows())))
    return RecordsConfig(source=path)


def _biff(cells: Sequence[Sequence[Cell]]) -> bytes:
    begin = _record(0x809, struct.pack("<HHHHII", 0x600, 5, 0, 0, 0, 0))
    named = struct.pack("<BBBB", 0, 0, 1, 0) + b"s"
    place = len(begin) + len(_record(0x85, bytes(4) + named)) + len(_record(10, b""))
    sheet = [
        _record(0x809, struct.pack("<HHHHII", 0x600, 16, 0, 0, 0, 0)),
        _record(0x200, struct.pack("<IIHHH", 0, len(cells), 0, 3, 0)),
    ]
    for number, row in enumerate(cells):
        for column, cell in enumerate(row):
            at = struct.pack("<HHH", number, column, 0)
            if isinstance(cell, str):
                sheet.append(_record(0x204, at + struct.pack("<HB", len(cell), 0) + cell.encode()))
            else:
                sheet.append(_record(0x203, at + struct.pack("<d", cell)))
    globals_ = begin + _record(0x85, struct.pack("<I", place) + named) + _record(10, b"")
    return globals_ + b"".join(sheet) + _record(10, b"")


def _record(kind: int, data: bytes) -> bytes:
    return struct.pack("<HH", kind, len(data)) + data


def _compound(name: str, stream: bytes) -> bytes:
    """One stream in a file of sectors: the first has the table of all, the second the directory."""
    data = stream.ljust(max(STREAM, -len(stream) // SECTOR * -SECTOR), b"\0")
    sectors = len(data) // SECTOR
    table = [FAT, END, *range(3, 2 + sectors), END]
    head = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(16)
    head += struct.pack("<HHHHH6x", 0x3E, 3, 0xFFFE, 9, 6)
    head += struct.pack("<10I", 0, 1, 1, 0, STREAM, END, 0, END, 0, 0)
    entries = _entry("Root Entry", 5, 1, END, 0) + _entry(name, 2, FREE, 2, len(data))
    return (
        head.ljust(SECTOR, b"\xff")
        + struct.pack(f"<{len(table)}I", *table).ljust(SECTOR, b"\xff")
        + entries.ljust(SECTOR, b"\0")
        + data
    )


def _entry(name: str, kind: int, child: int, start: int, size: int) -> bytes:
    text = name.encode("utf-16-le") + b"\0\0"
    about = struct.pack("<HBBIII", len(text), kind, 1, FREE, FREE, child)
    return text.ljust(64, b"\0") + about + bytes(36) + struct.pack("<IQ", start, size)
