"""Folders that carry the state of a party: a backup, or what moves to another machine. A manifest in it has
the digest of every file and the head of its ledger. It can act as this party: only its owner can read it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eigenveil.accounting.ledger import Ledger
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.numerics.encoding import parse_json
from eigenveil.signatures import check_format, formatted
from eigenveil_common.files import failpoint, is_occupied, read, storage_errors, sync, write_secret

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Content of a folder: whose it is, its ledger (`rows`, `head` and `spent_micro_rho`), and the digest of
    each file by its path in the folder."""

    owner: str
    created_at: str
    ledger: dict[str, Any]
    files: dict[str, str]

    def describes(self, ledger: Ledger) -> bool:
        """Return True if the folder was made with this ledger."""
        return (self.ledger["rows"], self.ledger["head"]) == (ledger.size, ledger.head)


def write_manifest(here: Path, kind: str, owner: str, ledger: Ledger) -> Manifest:
    """Write the manifest of the format `kind` into a folder that is otherwise complete."""
    paths = sorted(path for path in here.rglob("*") if path.is_file())
    manifest = Manifest(
        owner=owner,
        created_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        ledger={"rows": ledger.size, "head": ledger.head, "spent_micro_rho": ledger.spent.micro_rho},
        files={path.relative_to(here).as_posix(): _digest(path) for path in paths},
    )
    content = json.dumps(formatted(kind, asdict(manifest)), indent=2, sort_keys=True)
    write_secret(here / MANIFEST, content.encode() + b"\n")
    return manifest


def read_manifest(source: Path, kind: str, noun: str) -> Manifest:
    """Return the manifest of a folder. Raises RequestError, code `bad-config`: it is not a complete one."""
    try:
        content = parse_json(read(source / MANIFEST))
        check_format(content, kind, "the manifest")
        manifest = Manifest(**{one.name: content[one.name] for one in fields(Manifest)})
        if any(Path(name).is_absolute() or ".." in Path(name).parts for name in manifest.files):
            raise ValueError("a file outside the folder")
        if manifest.ledger.keys() != {"rows", "head", "spent_micro_rho"}:
            raise ValueError("it states no ledger")
        return manifest
    except KeyError as problem:
        raise RequestError(Code.BAD_CONFIG, f"{source} is not {noun}: no {problem} in it") from problem
    except (ValueError, TypeError, AttributeError, PeerError) as problem:
        raise RequestError(Code.BAD_CONFIG, f"{source} is not {noun}: {problem}") from problem


def copy_files(source: Path, manifest: Manifest, here: Path) -> None:
    """Copy all files of a folder and compare their digests. Raises RequestError, code `bad-config`."""
    for name, expected in manifest.files.items():
        (here / name).parent.mkdir(mode=0o700, exist_ok=True)
        write_secret(here / name, read(source / name))
        if _digest(here / name) != expected:
            raise RequestError(
                Code.BAD_CONFIG, f"{source / name} differs from the manifest; copy the folder again"
            )


def with_paths(text: str, **paths: str) -> str:
    """Return a TOML configuration in which these keys name other paths."""
    for name, path in paths.items():
        text = re.sub(rf"^\s*{name}\s*=.*$", f'{name} = "{path}"', text, count=1, flags=re.MULTILINE)
    return text


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `folder` as a whole or not at all. Raises RequestError: it exists
    and is not empty."""
    if is_occupied(folder):
        raise RequestError(
            Code.CONFLICT, f"{folder} exists already; nothing was overwritten: name a new folder"
        )
    with storage_errors("make", folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        here = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        with storage_errors("write", folder):
            yield here
            for part in sorted(path for path in here.rglob("*") if path.is_dir()):
                sync(part)
            sync(here)
            failpoint("folder-replacing")
            os.replace(here, folder)
            sync(folder)
    finally:
        shutil.rmtree(here, ignore_errors=True)


def _digest(path: Path) -> str:
    return hashlib.sha256(read(path)).hexdigest()
