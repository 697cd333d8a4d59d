"""The statement of how a release was built: in-toto's Statement v1 with SLSA's provenance v1, unsigned."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pip_requirements_parser import RequirementsFile

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
# Names, not addresses: nobody publishes this yet.
BUILD_TYPE, BUILDER = "urn:eigenveil:make-release:1", "urn:eigenveil:unpublished-builder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One line of a hash-locked list: `sha256` are the files that it allows; `here` if its marker is true."""

    name: str
    version: str
    sha256: tuple[str, ...]
    here: bool


def locked(requirements: Path) -> list[Pin]:
    """Return the pins of a hash-locked list, in its order."""
    lines = RequirementsFile.from_file(str(requirements)).requirements
    return [
        Pin(
            name=line.name,
            version=line.get_pinned_version,
            sha256=tuple(option.removeprefix("sha256:") for option in line.hash_options),
            here=line.marker is None or line.marker.evaluate(),
        )
        for line in lines
    ]


def installed_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def not_installed(pins: Iterable[Pin]) -> list[str]:
    """Return a sentence for each pin that this environment does not have at its version."""
    here = {pin: installed_version(pin.name) for pin in pins if pin.here}
    return [
        f"{pin.name} is {found}, not {pin.version}" for pin, found in here.items() if found != pin.version
    ]


def compiler() -> str:
    """Return the first line of what the C compiler says of its version."""
    words = [*shlex.split(os.environ.get("CC") or "cc"), "--version"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()[0]


def statement(digests: Mapping[str, str], commit: str, epoch: int, tools: Iterable[Pin]) -> dict[str, Any]:
    """Return the statement about files with these digests: the same for every build of a commit.

    No time and no path of a machine is in it. A package of the build may have come as any of the files that
    the lock allows."""
    source = {"name": "source", "digest": {"gitCommit": commit}}
    packages = [
        {"uri": f"pkg:pypi/{pin.name}@{pin.version}", "annotations": {"allowedSha256": list(pin.sha256)}}
        for pin in tools
        if pin.here
    ]
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"commit": commit, "SOURCE_DATE_EPOCH": epoch},
                "internalParameters": {
                    "python": f"{platform.python_implementation()} {platform.python_version()}",
                    "compiler": compiler(),
                    "machine": platform.machine(),
                },
                "resolvedDependencies": [source, *packages],
            },
            "runDetails": {"builder": {"id": BUILDER}},
        },
    }


def as_text(statement: Mapping[str, Any]) -> str:
    return json.dumps(statement, indent=1, sort_keys=True) + "\n"
