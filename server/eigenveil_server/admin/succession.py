"""Where the succession of authorities stands, and what is to be signed elsewhere."""

from __future__ import annotations

from pathlib import Path

from eigenveil_common.command import say, typed
from eigenveil_common.files import read
from eigenveil_server.config import Config
from eigenveil_server.pki import rollover
from eigenveil_server.pki.authority_files import certificates
from eigenveil_server.pki.lists import Lists
from eigenveil_server.pki.rollover_status import standing


def tell(config: Config, as_json: bool) -> None:
    found = standing(config)
    say(found.as_dict(), as_json, found.text())


def tell_change(config: Config, config_path: Path, in_force: bool, as_json: bool) -> None:
    """Where the change stands, or what to sign elsewhere."""
    draft = Lists(config.files).draft
    if in_force or draft is None:
        tell(config, as_json)
        return
    accept = typed("eigenveil-coordinator", "ca", "accept", "--config", config_path, "--signature", "FILE")
    say(
        {"draft": str(config.files.draft), "list": draft.as_dict()},
        as_json,
        f"{draft.text()}\nNot in force yet: those who sign are elsewhere. "
        f"Carry {config.files.draft} there, then:\neigenveil-coordinator ca sign --draft FILE --key KEY "
        "--out SIGNATURE\nand here:\n" + accept,
    )


def signers(paths: tuple[Path, ...], threshold: int) -> rollover.Signers:
    return rollover.Signers(
        certificates=tuple(certificates(read(path))[0] for path in paths), threshold=threshold
    )
