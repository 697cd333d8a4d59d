"""What is installed beside this program, as a CycloneDX 1.6 document."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from typing import Any

PROGRAM = "eigenveil"


def sbom(now: datetime | None = None) -> dict[str, Any]:
    """Every installed distribution with its version, licence and package URL."""
    found = {_name(one): one for one in distributions()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": f"{now or datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "component": _component(found[PROGRAM], "application"),
        },
        "components": [_component(found[name], "library") for name in sorted(found) if name != PROGRAM],
    }


def _name(one: Distribution) -> str:
    return one.metadata["Name"].lower().replace("_", "-").replace(".", "-")


def _component(one: Distribution, kind: str) -> dict[str, Any]:
    name = _name(one)
    purl = f"pkg:pypi/{name}@{one.version}"
    component: dict[str, Any] = {
        "type": kind, "bom-ref": purl, "name": name, "version": one.version, "purl": purl,
    }  # fmt: skip
    if "License-Expression" in one.metadata:
        component["licenses"] = [{"expression": one.metadata["License-Expression"]}]
    return component
