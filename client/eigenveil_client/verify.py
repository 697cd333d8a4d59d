"""release.json on an analyst's disk: check it, and write its report beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.bundle import verify_bundle
from eigenveil.errors import Code, RequestError
from eigenveil_common.files import make_folder, read, write_durably

KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Where a release and its report were written, and what the release says."""

    release: Path
    report: Path
    document: Mapping[str, Any]


def read_key(text: str) -> bytes:
    """A raw Ed25519 public key: 64 hexadecimal digits, or a file that holds them.

    Raises:
        RequestError: neither.
    """
    given = text.strip()
    if KEY.fullmatch(given.lower()):
        return bytes.fromhex(given)
    path = Path(given)
    if not path.is_file():
        raise RequestError(
            Code.BAD_ARGUMENT, f"{given!r} is neither a key of 64 hexadecimal digits nor a file"
        )
    data = read(path)
    content = data.decode("ascii", errors="replace").strip().lower()
    if KEY.fullmatch(content):
        return bytes.fromhex(content)
    if len(data) == 32:
        return data
    raise RequestError(Code.BAD_ARGUMENT, f"{path} holds no Ed25519 public key (64 hexadecimal digits)")


def verified(path: Path, key: bytes | None = None) -> dict[str, Any]:
    """The intact bundle in `path`.

    Raises:
        RequestError: code `bad-release` (see `bundle.verify_bundle`), or the file cannot be read.
    """
    return verify_bundle(read(path), key)


def write_result(data: bytes, folder: Path) -> Written:
    """Write an intact release.json and its report.html into `folder`, replacing what is there.

    Raises:
        InternalError: code `storage`, the folder cannot be written.
    """
    # Drawing takes a second to import; commands that only verify do not pay for it.
    from eigenveil.report import render

    bundle = verify_bundle(data)
    make_folder(folder)
    release, report = folder / "release.json", folder / "report.html"
    write_durably(release, data)
    page = render(bundle["document"], public_key=bundle["public_key"])
    write_durably(report, page.encode())
    return Written(release=release, report=report, document=bundle["document"])
