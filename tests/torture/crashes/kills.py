"""kill -9 at every failpoint of the coordinator, of a site and of an enrolment, over and over.

Two federations of real processes run study after study. Whoever is killed is started again, armed for the
next kill. After each kill, at each published round and in the end the books are held against
`tests.torture.model`: no release that is not charged in full, no charge that is not sealed, and the
same bytes for ever. Every study must end, released, with as many rounds as undisturbed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import TypeVar
from unittest import mock

from eigenveil.errors import Code, EigenveilError
from eigenveil.reporting.verify import load_release, verify_release
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection import channel
from eigenveil_client.connection.identity import load_identity
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.torture.crashes.armed import KILLED, SHORT_PAUSE, Kill
from tests.torture.crashes.forked import COORDINATOR, OPERATOR, SITES, STUDIES, Federation
from tests.torture.masked.known import wrong_round
from tests.torture.model import Witness, read

EACH, RARE = 8, 2  # kills at each core failpoint, and at each of the others
FEDERATIONS = 2
VICTIM, NEWCOMER = SITES[0], "carl"
WEAK_STUDIES = 9  # studies without a kill, after which an armed failpoint counts as unreachable

# The highest passage at which to kill; a study passes it at least so often, and a process one study.
AT_COORDINATOR: Mapping[str, int] = {
    "study-planned": 1, "study-reserving": 1, "study-reserved": 1, "study-resumed": 1,
    "consent-storing": 2, "consent-stored": 2, "consent-complete": 1,
    "round-opening": 4, "round-opened": 4, "round-offered": 6,
    "answer-taken": 6, "answer-storing": 3, "answer-stored": 3,
    "upload-opened": 2, "chunk-taken": 3, "upload-committing": 2,
    "decline-storing": 3, "decline-stored": 3,
    "round-closed": 4, "noise-drawn": 4, "noise-taken": 4,
    "ready-taken": 1, "set-fixing": 4, "set-fixed": 4,
    "round-followed": 4, "round-sealing": 4, "round-sealed": 4, "round-released": 4,
    "sealed-piece-stored": 2, "bundle-built": 1, "release-piece-stored": 4,
    "study-settling": 1, "study-settled": 1,
    "certificate-issuing": 1, "certificate-issued": 1,
    "renewal-issuing": 1, "renewal-issued": 1, "renewal-taking-up": 1,
}  # fmt: skip
AT_SITE: Mapping[str, int] = {
    "plan-storing": 1, "plan-accepted": 1, "records-loaded": 1,
    "answer-computed": 4, "answer-charging": 4, "answer-charged": 4,
    "reply-sending": 4, "chunk-sent": 3, "reply-sent": 4,
    "study-key-storing": 1, "study-key-stored": 1,
    "ready-storing": 1, "ready-stored": 1, "ready-sending": 1, "ready-sent": 1,
    "share-drawn": 4, "answer-masked": 4, "attempt-storing": 4, "attempt-stored": 4,
    "refusal-writing": 3, "refusal-written": 3, "refusal-sent": 3,
    "study-ending": 1, "study-ended": 1,
    "generation-announcing": 1, "generation-announced": 1,
    "identity-keyed": 1, "identity-granted": 1, "identity-replacing": 1, "identity-replaced": 1,
}  # fmt: skip
AT_ENROLMENT: Mapping[str, int] = {
    "identity-keyed": 1, "identity-granted": 1, "identity-replacing": 1, "identity-replaced": 1,
    "file-replacing": 3,
}  # fmt: skip
AT_OPERATOR: Mapping[str, int] = {"backup-copied": 1, "restore-checked": 1, "folder-replacing": 1}
# Where a crash could cost privacy or a result; everything else is killed less often.
CORE = (
    "study-reserving", "study-reserved", "study-resumed", "consent-storing", "consent-stored",
    "consent-complete", "round-opening", "round-opened", "answer-taken", "answer-storing", "answer-stored",
    "chunk-taken", "upload-committing", "round-closed", "noise-drawn", "noise-taken",
    "round-followed", "sealed-piece-stored", "round-sealing", "round-sealed", "round-released",
    "bundle-built", "release-piece-stored", "study-settling", "study-settled",
    "set-fixing", "set-fixed", "share-drawn", "attempt-storing", "attempt-stored",
    "plan-storing", "answer-charging", "answer-charged", "reply-sending", "reply-sent", "study-ending",
)  # fmt: skip

RESUMED = "study-resumed"
MIDDLE = Kill(name="round-opened")  # leaves a study under way, whichever it is
GLANCE = 0.1  # seconds
UNREACHABLE = Code.UNREACHABLE.exit_code  # while the coordinator is dead
T = TypeVar("T")


@dataclass(slots=True)
class Toll:
    """Kills and faults of one federation so far. `due` are the kills still to come, by victim."""

    due: dict[str, list[Kill]]
    witness: Witness = field(default_factory=Witness)
    done: Counter[str] = field(default_factory=Counter)
    armed: dict[str, Kill] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    studies: int = 0
    failed: list[str] = field(default_factory=list)

    @property
    def left(self) -> bool:
        return bool(self.armed) or any(self.due.values())

    @property
    def faults(self) -> list[str]:
        return [*self.witness.faults, *self.failed]


def next_kill(due: list[Kill], *, under_way: bool) -> Kill | None:
    """Take the kill for which to arm a process that starts now.

    Only a process that starts with a study under way resumes one. Where there is none, a kill in the middle
    of the next study comes first, beside those that are due."""
    if due and due[-1].name == RESUMED and not under_way:
        return MIDDLE
    return due.pop() if due else None


async def restart(here: Federation, toll: Toll, name: str) -> None:
    while True:
        states = read(here.books, here.sites).states.values()
        kill = next_kill(toll.due[name], under_way="running" in states)
        if kill is not None:
            toll.armed[name] = kill
        here.start(name, kill=kill)
        code = await here.ended(name)
        toll.armed.pop(name, None)
        if kill is None or code != KILLED:
            toll.failed.append(f"{name} ended with {code}: {_last(here, name)}")
        else:
            toll.done[kill.name] += 1
        toll.witness.look(read(here.books, here.sites))


def _last(here: Federation, name: str) -> str:
    lines = (here.folder / f"{name}.log").read_text().splitlines()
    return lines[-1][-300:] if lines else "no log"


async def stubborn(query: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await query()
        except EigenveilError as problem:
            if problem.code is not Code.UNREACHABLE:
                raise


async def one_study(here: Federation, toll: Toll, kind: str, studies: Mapping[str, str] = STUDIES) -> None:
    toll.studies += 1
    submission, text = f"{kind}-{toll.studies}", studies[kind]
    async with Analyst(here.analyst) as analyst:
        plan, _ = await stubborn(lambda: analyst.submit(text, submission))
        last = pb.StudyEvent()
        async for last in analyst.watch(bytes.fromhex(plan.digest)):
            if last.round_state == "released":
                toll.witness.published(plan.digest, last.round, read(here.books, here.sites))
        if last.state != pb.STUDY_STATE_RELEASED:
            toll.failed.append(
                f"study {submission} ended as {pb.StudyState.Name(last.state)}: {last.failure}"
            )
            return
        data = await stubborn(lambda: analyst.release(bytes.fromhex(plan.digest)))
    toll.witness.look(read(here.books, here.sites))
    release = load_release(data)
    verify_release(release, here.analyst.release_keys.known)
    rounds = release.document["rounds"]
    if plan.masked and (wrong := wrong_round(plan, release.document, here.records)):
        toll.failed.append(f"study {submission}: {wrong}")
    seen = [toll.witness.digests.get((plan.digest, one["round"])) for one in rounds]
    if toll.witness.bundles[plan.digest] != data or seen != [one["release"] for one in rounds]:
        toll.failed.append(f"study {submission} released something else than was sealed")
    if toll.rounds.setdefault(kind, len(rounds)) != len(rounds):
        toll.failed.append(
            f"study {submission} has {len(rounds)} rounds, and {toll.rounds[kind]} undisturbed"
        )


async def all_studies(here: Federation, toll: Toll) -> None:
    weak, kinds = 0, cycle(STUDIES)
    while toll.left and not toll.failed:
        before = toll.done.total()
        await one_study(here, toll, next(kinds))
        weak = 0 if toll.done.total() > before else weak + 1
        if weak > WEAK_STUDIES:
            toll.failed.append(f"nobody passes {sorted(kill.name for kill in toll.armed.values())}")


async def enrolments(here: Federation, toll: Toll) -> None:
    """A newcomer enrols, again and again, killed in the middle; in the end it always is enrolled."""
    while toll.due[NEWCOMER] or _certifying(toll.due[COORDINATOR], toll):
        own = toll.due[NEWCOMER].pop() if toll.due[NEWCOMER] else None
        if own is None and not _certifying([], toll):
            await asyncio.sleep(GLANCE)  # the coordinator will come to it
            continue
        await _enrolment(here, toll, own)


async def _enrolment(here: Federation, toll: Toll, kill: Kill | None) -> None:
    enrol = ("enrol", "--config", here.config(NEWCOMER), "--join", await here.join(NEWCOMER))
    left = kill
    while (code := await here.done(NEWCOMER, *enrol, kill=left)) != 0:
        if code == KILLED and left is not None:
            toll.done[left.name] += 1
            left = None
        elif code != UNREACHABLE:
            toll.failed.append(f"an enrolment ended with {code}: {here.log(NEWCOMER)}")
            return
    load_identity(here.folder / NEWCOMER / "identity")
    if left is not None:
        toll.failed.append(f"an enrolment does not pass {left}")


def _certifying(due: list[Kill], toll: Toll) -> bool:
    """True if the coordinator is to be killed at an enrolment: by one of `due`, or by what is armed now."""
    armed = [kill for name, kill in toll.armed.items() if name == COORDINATOR]
    return any(kill.name.startswith("certificate-") for kill in (*due, *armed))


async def operations(here: Federation, toll: Toll) -> None:
    """The operator backs up and restores, killed in the middle: the folder is whole or not there."""
    while toll.due[OPERATOR]:
        number, kill = len(toll.due[OPERATOR]), toll.due[OPERATOR].pop()
        copy, restored = here.folder / f"copy-{number}", here.folder / f"restored-{number}"
        backup = ("backup", "--config", here.config(COORDINATOR), "--out", str(copy))
        restore = ("restore", "--from", str(copy), "--dir", str(restored))
        for command, made, at in ((backup, copy, "backup"), (restore, restored, "restore")):
            due = kill if kill.name.startswith((at, "folder")) else None
            code = await here.done(OPERATOR, *command, kill=due)
            if due is not None:
                toll.done[due.name] += code == KILLED
                if code != KILLED or made.exists():
                    toll.failed.append(f"{at} ended with {code}, and left {made.exists()}")
                code = await here.done(OPERATOR, *command)
            if code != 0:
                toll.failed.append(f"{at} ended with {code}: {here.log(OPERATOR)}")
                return


async def undisturbed(here: Federation, toll: Toll) -> None:
    for name in SITES:
        assert await here.serves(here.start(name), name)
    for kind in STUDIES:
        await one_study(here, toll, kind)


async def federation(folder: Path, due: dict[str, list[Kill]]) -> Toll:
    here, toll = Federation(folder), Toll(due=due)
    try:
        await here.set_up()
        await here.make_site(NEWCOMER, len(SITES))
        await undisturbed(here, toll)
        await disturbed(here, toll)
    finally:
        here.stop()
    return toll


async def disturbed(here: Federation, toll: Toll) -> None:
    here.stop((COORDINATOR, VICTIM))
    keepers = [asyncio.create_task(restart(here, toll, name)) for name in (COORDINATOR, VICTIM)]
    work = asyncio.create_task(_work(here, toll))
    try:
        done, _ = await asyncio.wait((work, *keepers), return_when=asyncio.FIRST_COMPLETED)
        for task in done:  # a keeper only ends by an error of this test
            task.result()
    finally:
        for task in (work, *keepers):
            task.cancel()
        await asyncio.gather(work, *keepers, return_exceptions=True)
    toll.witness.look(read(here.books, here.sites))


async def _work(here: Federation, toll: Toll) -> None:
    await asyncio.gather(all_studies(here, toll), enrolments(here, toll), operations(here, toll))


def plan(each: int, rare: int, seed: int) -> list[dict[str, list[Kill]]]:
    """Victims and places of the kills, for every federation, in an order drawn from `seed`."""
    chance = random.Random(seed)
    plans: list[dict[str, list[Kill]]] = [{} for _ in range(FEDERATIONS)]
    positions = {COORDINATOR: AT_COORDINATOR, VICTIM: AT_SITE, NEWCOMER: AT_ENROLMENT, OPERATOR: AT_OPERATOR}
    for victim, points in positions.items():
        kills = [
            Kill(name=name, passage=chance.randint(1, highest))
            for name, highest in points.items()
            for _ in range(each if name in CORE else rare)
        ]
        chance.shuffle(kills)
        for index, due in enumerate(plans):
            due[victim] = kills[index::FEDERATIONS]
    return plans


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """More than 200 kills at scale 1; at least one at each core failpoint."""
    plans = plan(max(1, round(EACH * scale)), round(RARE * scale), seed=1)
    folders = [folder / str(index) for index in range(FEDERATIONS)]
    for one in folders:
        one.mkdir()
    with mock.patch.object(channel, "MAX_BACKOFF_SECONDS", SHORT_PAUSE):
        tolls = await asyncio.gather(*map(federation, folders, plans))
    done = sum((toll.done for toll in tolls), Counter())
    open_most = max(toll.witness.most_open for toll in tolls)
    sealed = sum(len(toll.witness.digests) for toll in tolls)
    return [fault for toll in tolls for fault in toll.faults], (
        f"{done.total()} kills at {len(done)} failpoints in {sum(toll.studies for toll in tolls)} studies, "
        f"{sealed} releases: 0 under-charges, {open_most} unsealed charges, one digest a release"
    )
