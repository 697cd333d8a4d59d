"""What the checks need of the machine, asked before any of them begins."""

from __future__ import annotations

import shutil
from collections.abc import Collection

from tests.common.storage import cluster
from tests.torture.networks import nets

# Programs that are no part of every Debian, and the package that brings each.
PROGRAMS = {"networks": {"ip": "iproute2", "tc": "iproute2", "nft": "nftables"}}


def lacking(checks: Collection[str]) -> list[str]:
    """A sentence for each thing that one of `checks` needs and this machine lacks."""
    found = [
        f"{check} needs the program {program}; on Debian and Ubuntu: sudo apt install {package}"
        for check in checks
        for program, package in PROGRAMS.get(check, {}).items()
        if shutil.which(program) is None
    ]
    if "charges" in checks and (why := cluster.missing()):
        found.append(f"charges: {why}; on Debian and Ubuntu: sudo apt install postgresql util-linux")
    if "networks" in checks and not found:
        try:
            nets.probe()
        except nets.NotPermittedError as problem:
            found.append(f"networks: this machine does not let us make network namespaces: {problem}")
    return found
