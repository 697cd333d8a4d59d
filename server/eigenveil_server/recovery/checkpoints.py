"""Signed checkpoints of the ledger: handed to sites, and believed when a site brings one back [R20].

A checkpoint that a site presents and that is not in the ledger here was signed by a later state of this
coordinator. Going on would spend again what was spent, so the process writes down what it saw, ends, and
does not start any more until the ledger holds that checkpoint or the operator has accepted the loss.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import NamedTuple, NoReturn

from eigenveil.accounting.checkpoint import Checkpoint, checkpoint_of, verify_checkpoint
from eigenveil.accounting.ledger import EntryKind
from eigenveil.accounting.zcdp import NOTHING, Cost
from eigenveil.errors import Code, InternalError, PeerError, RequestError
from eigenveil.identity import Identity, Role
from eigenveil.numerics.encoding import parse_json
from eigenveil_common import log
from eigenveil_common.files import read, write_secret
from eigenveil_common.storage.database import Connection, Database
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.clock import Clock
from eigenveil_server.config import Config
from eigenveil_server.fatal import Fatal
from eigenveil_server.pki.keys import Keys
from eigenveil_server.storage.database import Store, audit
from eigenveil_server.storage.group_commit import GroupCommit


class Tally(NamedTuple):
    """Of the rows read so far: how many, the last one's digest, what was spent or is set aside, and whether
    all noise is Gaussian."""

    size: int
    last: str
    committed: Cost
    gaussian: bool


NO_ROWS = Tally(size=0, last="", committed=NOTHING, gaussian=True)


@dataclass(slots=True)
class Chain:
    """The ledger's digests and what is committed, read on as rows come; only durable rows. `rows` says
    how many there are: every site asks at every call. `tally` is replaced as a whole, after the digests that
    it counts were added: whoever signs what it says does so beside a thread that reads on."""

    reader: Database
    rows: Callable[[], int]
    lock: Lock = field(default_factory=Lock)
    digests: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)
    tally: Tally = NO_ROWS
    spent: Cost = NOTHING
    reserved: dict[str, Cost] = field(default_factory=dict)  # of each open study, less what it has spent

    @property
    def whole(self) -> bool:
        """Whether nothing came since it was read."""
        return self.rows() == self.tally.size

    def read_on(self) -> None:
        with self.lock:
            self._read_on()

    def _read_on(self) -> None:
        rows = self.reader.rows(
            "SELECT kind, study, micro_rho, atto_delta, digest FROM ledger "
            'WHERE "index" >= ? ORDER BY "index"',
            (self.tally.size,),
        )
        size, last, _, gaussian = self.tally
        for row in rows:
            last = row["digest"]
            gaussian = gaussian and row["kind"] != EntryKind.RESERVE.value
            cost = Cost(micro_rho=row["micro_rho"], atto_delta=int(row["atto_delta"]))
            self._count(EntryKind(row["kind"]), row["study"], cost)
        came = [row["digest"] for row in rows]
        self.digests += came
        self.places.update(came)
        self.tally = Tally(size + len(came), last, sum(self.reserved.values(), self.spent), gaussian)

    def _count(self, kind: EntryKind, study: str, cost: Cost) -> None:
        if kind is EntryKind.SETTLE:
            self.reserved.pop(study, None)
        elif kind.spends:
            self.spent += cost
            self.reserved[study] -= cost
        else:
            self.reserved[study] = cost


class Checkpoints:
    """The checkpoints of one coordinator's ledger.

    Raises on construction:
        InternalError: code `storage`, a site holds a later checkpoint than the ledger here.
    """

    def __init__(
        self, config: Config, store: Store, ledger: LedgerStore, keys: Keys, clock: Clock, fatal: Fatal
    ) -> None:
        self._config = config
        self._store = store
        self._keys = keys
        self._clock = clock
        self._fatal = fatal
        self._chain = Chain(store.reader, lambda: ledger.tip[1])
        self._signed: pb.SignedCheckpoint | None = None
        self._signed_size = 0
        self._chain.read_on()  # all of a long ledger now, not while calls wait
        self._refuse_if_behind()

    async def look(self) -> None:
        """Take in what was charged since the last look: what is said below is as of that."""
        if not self._chain.whole:
            await self._store.read(self._chain.read_on)

    def parted_from(self, held: bytes) -> bool:
        """Whether a site that holds this digest saw a ledger which is not the one here, though its loss was
        accepted: it gets no work, but at once the checkpoint of this one."""
        return bool(held) and held.hex() not in self._chain.places

    def other_than(self, held: bytes) -> pb.SignedCheckpoint | None:
        """The checkpoint of the ledger, signed, if it is another than the one of this digest; None also for a
        ledger without rows."""
        now, last, committed, gaussian = self._chain.tally
        if not now or last == held.hex():
            return None
        if self._signed is None or self._signed_size != now:
            digests = self._chain.digests[:now]
            checkpoint = checkpoint_of(self._config.federation, digests, [committed], gaussian=gaussian)
            said = checkpoint.to_json()
            self._signed = pb.SignedCheckpoint(checkpoint_json=said, signature=self._keys.sign_head(said))
            self._signed_size = now
        return self._signed

    async def check_shown(self, caller: Identity, hello: pb.HelloRequest) -> None:
        """Stop if a site shows a checkpoint that this ledger does not have.

        Raises:
            PeerError: the checkpoint is not one that this federation signed.
        """
        if caller.role is Role.SITE and hello.HasField("checkpoint"):
            checkpoint = read_checkpoint(hello.checkpoint, self._keys, self._config.federation)
            if not await self._store.read(self._knows, checkpoint):
                self._stop(caller.name, hello.checkpoint, checkpoint)

    async def presented(self, caller: Identity, hello: pb.HelloRequest, writer: GroupCommit) -> None:
        """A site's daemon, whose greeting was accepted, has said which checkpoint it holds, or that it holds
        none; after a restore this is waited for. Other programs of a site hold no ledger to show."""
        if not hello.next_generation:
            return
        if caller.role is Role.SITE and caller.name in await self._store.read(awaited, self._store.reader):
            at, site = self._clock(), caller.name
            await writer.write(lambda change: stop_waiting(change, at, site, "presented"))
            log.event("checkpoint-presented", site=caller.name)

    def _knows(self, checkpoint: Checkpoint) -> bool:
        self._chain.read_on()
        return checkpoint.is_in(self._chain.digests) or any(
            lost.follows(checkpoint)
            for lost in accepted_losses(self._store.reader, self._keys, self._config.federation)
        )

    def _stop(self, site: str, signed: pb.SignedCheckpoint, checkpoint: Checkpoint) -> NoReturn:
        marker = {
            "site": site,
            "checkpoint": signed.checkpoint_json.decode(),
            "signature": signed.signature.hex(),
            "at_ms": self._clock(),
        }
        log.alarm("ledger-behind", site=site, here=len(self._chain.digests), there=checkpoint.size)
        try:
            write_secret(self._config.files.marker, json.dumps(marker, indent=2, sort_keys=True).encode())
        finally:  # a process that cannot even write this down must end all the more
            self._fatal(self._behind(site, checkpoint))

    def _refuse_if_behind(self) -> None:
        path = self._config.files.marker
        if not path.exists():
            return
        site, signed = read_marker(path)
        checkpoint = read_checkpoint(signed, self._keys, self._config.federation)
        if not self._knows(checkpoint):
            raise self._behind(site, checkpoint)
        path.unlink()
        log.event("ledger-complete-again", site=site)

    def _behind(self, site: str, checkpoint: Checkpoint) -> InternalError:
        return InternalError(
            Code.STORAGE,
            f"site {site} holds a checkpoint of {checkpoint.size} rows that this coordinator signed, and the "
            f"ledger here, of {len(self._chain.digests)} rows, does not have it: it was put back to an older "
            "state. Restore a newer backup; if there is none, run: "
            "eigenveil-coordinator accept-loss --config FILE",
        )


def read_marker(path: Path) -> tuple[str, pb.SignedCheckpoint]:
    """Which site presented which checkpoint.

    Raises:
        RequestError: code `bad-config`, it cannot be read.
    """
    try:
        said = parse_json(read(path))
        signature = bytes.fromhex(said["signature"])
        return str(said["site"]), pb.SignedCheckpoint(
            checkpoint_json=said["checkpoint"].encode(), signature=signature
        )
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise RequestError(
            Code.BAD_CONFIG, f"{path} is damaged; keep it, and restore the newest backup"
        ) from problem


def awaited(reader: Database) -> list[str]:
    """Sites whose checkpoint is waited for since a restore; not those that were denied meanwhile."""
    rows = reader.rows(
        "SELECT site FROM awaited WHERE NOT EXISTS "
        "(SELECT 1 FROM denied d WHERE (d.role, d.name) = (?, site)) ORDER BY site",
        (Role.SITE.value,),
    )
    return [row["site"] for row in rows]


def wait_for(change: Connection, sites: Iterable[str]) -> None:
    """Open no round before these sites have shown their checkpoints. What their next greetings must show was
    handed out after what is stored here, so it is forgotten."""
    change.execute("DELETE FROM awaited")
    for site in sites:
        change.execute("INSERT INTO awaited VALUES (?)", (site,))
    change.execute("UPDATE greetings SET generation = NULL")


def stop_waiting(change: Connection, at: int, site: str, why: str) -> None:
    """Wait for the checkpoint of this site no more."""
    change.execute("DELETE FROM awaited WHERE site = ?", (site,))
    audit(change, at, "checkpoint", f"site/{site}", why)


def accepted_losses(reader: Database, keys: Keys, federation: str) -> list[Checkpoint]:
    """Checkpoints of ledgers whose loss the operator has accepted, and which are charged for."""
    return [
        read_checkpoint(
            pb.SignedCheckpoint(checkpoint_json=row["head"], signature=row["signature"]), keys, federation
        )
        for row in reader.rows("SELECT head, signature FROM lost ORDER BY at, digest")
    ]


def read_checkpoint(signed: pb.SignedCheckpoint, keys: Keys, federation: str) -> Checkpoint:
    """A checkpoint that this coordinator signed.

    Raises:
        PeerError: it did not, or it was for another federation.
    """
    checkpoint = verify_checkpoint(signed.checkpoint_json, signed.signature, keys.release_public)
    if checkpoint.federation != federation:
        raise PeerError(
            Code.PROTOCOL, f"the checkpoint is of federation {checkpoint.federation}, not of {federation}"
        )
    return checkpoint
