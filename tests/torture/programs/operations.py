"""Random programs of faults: the members that they run on, what may be done, and how a seed draws one."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil.identity import Role
from eigenveil.noise.source import NoiseSpec
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil_client.connection.identity import enrol
from eigenveil_common.files import write_secret
from eigenveil_server.admin.setup import join_file
from tests.server.masked.sites import masked_toml
from tests.server.rig import HOUR, SITES, made, serving, study_toml
from tests.torture.masked.known import exchange_key_cards
from tests.torture.programs.lossy import LOSE_ANSWER, LOSE_REQUEST, REPEAT

COORDINATOR, ANALYST = "coordinator", "ada"


class NoNoise:
    """Nothing is added, so that a double count shows exactly; its releases say that they are not private."""

    private = False

    def draw(self, spec: NoiseSpec) -> IntArray:
        return frozen(np.zeros(spec.length, dtype=np.int64))

    def uniform(self, count: int) -> FloatArray:
        return np.full(count, 0.5)


def one_hot(site: str, sites: Sequence[str] = SITES) -> FloatArray:
    """Records of a site, each with a value in the site's own column. The high bits of a sum of sizes tell how
    many sites are in it, and the low ones which."""
    place = sites.index(site)
    values = np.zeros((2 ** max(6, len(sites)) + 2**place, len(sites)))
    values[:, place] = 0.75
    return values


@contextmanager
def template(sites: Sequence[str] = SITES) -> Iterator[Path]:
    """A federation whose members have enrolled, to be copied by every program."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        asyncio.run(_enrolled(folder, sites))
        yield folder


async def _enrolled(folder: Path, sites: Sequence[str]) -> None:
    async with serving(made(folder / COORDINATOR)) as rig:
        members = {ANALYST: Role.ANALYST} | dict.fromkeys(sites, Role.SITE)
        for name, role in members.items():
            path = folder / f"{name}.join"
            join = join_file(rig.config, role, name, HOUR, None)
            join |= {
                "coordinator": f"127.0.0.1:{rig.ports.port}",
                "enrol": f"127.0.0.1:{rig.ports.enrol_port}",
            }
            write_secret(path, json.dumps(join).encode())
            (folder / name).mkdir()
            await asyncio.to_thread(enrol, path, folder / name / "identity")
    exchange_key_cards({name: folder / name / "identity" for name in sites})


LONGEST = 60  # operations
MOST_STUDIES = 3
EVERYBODY = (COORDINATOR, *SITES)
WAITS = (0.001, 0.01, 0.05, 0.2, 1.0, 3.0)
POINTS = {
    COORDINATOR: (
        "study-planned", "study-reserving", "study-reserved", "study-resumed", "study-cancelling",
        "consent-storing", "consent-stored", "consent-complete",
        "round-opening", "round-opened", "round-offered", "answer-taken", "answer-storing", "answer-stored",
        "upload-opened", "chunk-taken", "upload-committing", "round-closed",
        "round-followed", "noise-drawn", "noise-taken", "round-sealing", "round-sealed", "round-released",
        "bundle-built", "study-settling", "study-settled",
        "renewal-issuing", "renewal-issued", "renewal-taking-up", "ready-taken", "set-fixing", "set-fixed",
    ),
    "site": (
        "plan-storing", "plan-accepted", "records-loaded", "answer-computed", "answer-charging",
        "answer-charged", "reply-sending", "chunk-sent", "reply-sent", "study-ending", "study-ended",
        "generation-announcing", "generation-announced", "identity-keyed", "identity-granted",
        "identity-replacing", "identity-replaced", "file-replacing",
        "ready-storing", "ready-stored", "ready-sending", "ready-sent",
        "share-drawn", "answer-masked", "attempt-storing", "attempt-stored",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation: what, whom, how much; `name` is a failpoint or a study's settings."""

    kind: str
    who: str = ""
    amount: float = 0.0
    name: str = ""


Program = tuple[Op, ...]


def drawn(seed: int) -> Program:
    """A program that depends on `seed` alone. It begins with a study."""
    chance = random.Random(seed)
    operations = [_submit(chance)]
    studies = 1
    for _ in range(chance.randint(4, LONGEST - 1)):
        operation = _drawn(chance)
        if operation.kind == "submit":
            studies += 1
            if studies > MOST_STUDIES:
                continue
        operations.append(operation)
    return tuple(operations)


def _drawn(chance: random.Random) -> Op:
    kinds = {
        "wait": 10, LOSE_REQUEST: 4, LOSE_ANSWER: 5, REPEAT: 4, "cut": 2, "mend": 3, "jump": 1,
        "kill": 2, "kill-at": 4, "start": 4, "renew": 2, "submit": 1, "cancel": 0.3,
    }  # fmt: skip
    kind = chance.choices(list(kinds), list(kinds.values()))[0]
    site, who = chance.choice(SITES), chance.choice(EVERYBODY)
    match kind:
        case "wait":
            return Op(kind=kind, amount=chance.choice(WAITS) * chance.uniform(0.5, 2.0))
        case "submit":
            return _submit(chance)
        case "jump":
            return Op(kind=kind, who=who, amount=chance.choice((-1, 1)) * 10.0 ** chance.uniform(1, 5))
        case "kill-at":
            points = POINTS[COORDINATOR if who == COORDINATOR else "site"]
            return Op(kind=kind, who=who, amount=chance.randint(1, 4), name=chance.choice(points))
        case "kill" | "start":
            return Op(kind=kind, who=who)
        case "cancel":
            return Op(kind=kind, amount=chance.randint(0, MOST_STUDIES - 1))
        case _:
            return Op(kind=kind, who=site)


def _submit(chance: random.Random) -> Op:
    settings: dict[str, Any] = {
        "algorithm": chance.choice(("gauss-cov", "gauss-cov", "private-oja")),
        "quorum": chance.choice((1, 2, 2, 3)),
        "deadline_seconds": chance.choice((2.0, 4.0, 8.0)),
    }
    if attempts := chance.choice((0, 0, 1, 2, 3)):  # a masked study
        settings |= {"spares": attempts - 1, "quorum": max(2, settings["quorum"])}
    return Op(kind="submit", name=json.dumps(settings))


def toml_of(name: str, settings: str) -> str:
    """The study that a `submit` means."""
    message = json.loads(settings)
    study = masked_toml if "spares" in message else study_toml
    text = study(name=name, columns=len(SITES), components=1, minimum_cohort=20, **message)
    return text.replace("components = 1", "components = 1\nbatches = 2") if "oja" in settings else text
