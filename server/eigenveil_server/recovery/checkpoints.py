"""Signed checkpoints of the ledger: sent to sites, and compared when a site presents one [R20]. One that is
not in the ledger is of a later state, and going on would spend the same budget again. So the process writes a
marker and ends, until the ledger has that checkpoint or the operator has accepted the loss."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import NoReturn

from eigenveil.accounting.checkpoint import Checkpoint, checkpoint_of, verify_checkpoint
from eigenveil.errors import Code, InternalError, PeerError, RequestError
from eigenveil.identity import Identity, Role
from eigenveil.numerics.encoding import parse_json
from eigenveil_common import log
from eigenveil_common.files import read, write_secret
from eigenveil_common.storage.database import Connection, Database
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.pki.keys import Keys
from eigenveil_server.process import Clock, Fatal
from eigenveil_server.storage.database import Store, audit
from eigenveil_server.storage.repository import GroupCommit


class Checkpoints:
    """Checkpoints of one coordinator's ledger. `_digests` are those of its durable rows, at least as many as
    `_totals` counts: signing happens beside a thread that reads on. Raises on construction InternalError:
    code `storage`, a site stores a later checkpoint than the ledger here."""

    def __init__(
        self, config: Config, store: Store, ledger: LedgerStore, keys: Keys, clock: Clock, fatal: Fatal
    ) -> None:
        self._config = config
        self._store = store
        self._keys = keys
        self._clock = clock
        self._fatal = fatal
        self._ledger = ledger
        self._lock = Lock()
        self._digests: list[str] = []
        self._known: set[str] = set()
        self._signed: pb.SignedCheckpoint | None = None
        self._signed_size = 0
        self._catch_up()  # a long ledger is read now, not while calls wait
        self._refuse_if_behind()

    async def refresh(self) -> None:
        """Read the rows charged since the last call; the methods below reflect that moment."""
        if self._ledger.totals.size != self._totals.size:
            await self._store.read(self._catch_up)

    def _catch_up(self) -> None:
        with self._lock:
            totals = self._ledger.totals  # before the rows, which may be more
            rows = self._store.reader.rows(
                'SELECT digest FROM ledger WHERE "index" >= ? ORDER BY "index"', (len(self._digests),)
            )
            self._digests += [row["digest"] for row in rows]
            self._known.update(row["digest"] for row in rows)
            self._totals = totals

    def is_unknown_digest(self, site_digest: bytes) -> bool:
        """True if this digest of a site is in a ledger other than this one, whose loss was accepted. The site
        gets no work but at once the current checkpoint."""
        return bool(site_digest) and site_digest.hex() not in self._known

    def checkpoint_if_newer(self, site_digest: bytes) -> pb.SignedCheckpoint | None:
        """Return the signed checkpoint of the ledger; None if the site has it, or the ledger is empty."""
        totals, federation = self._totals, self._config.federation
        if not totals.size or totals.head == site_digest.hex():
            return None
        if self._signed is None or self._signed_size != totals.size:
            digests, committed = self._digests[: totals.size], [totals.committed]
            document = checkpoint_of(federation, digests, committed, gaussian=totals.gaussian).signed_json
            signature = self._keys.sign_checkpoint(document)
            self._signed = pb.SignedCheckpoint(checkpoint_json=document, signature=signature)
            self._signed_size = totals.size
        return self._signed

    async def check_presented(self, caller: Identity, hello: pb.HelloRequest) -> None:
        """Stop the process if a site presents a checkpoint that this ledger does not have."""
        if caller.role is Role.SITE and hello.HasField("checkpoint"):
            checkpoint = read_checkpoint(hello.checkpoint, self._keys, self._config.federation)
            if not await self._store.read(self._contains, checkpoint):
                self._stop_behind(caller.name, hello.checkpoint, checkpoint)

    async def note_presented(self, caller: Identity, hello: pb.HelloRequest, writer: GroupCommit) -> None:
        """Note that a site's daemon has presented its checkpoint, or has none; after a restore every site
        must. Other programs of a site store no ledger."""
        if not hello.next_generation or caller.role is not Role.SITE:
            return
        at, site = self._clock(), caller.name
        if site in await self._store.read(awaited_sites, self._store.reader):
            await writer.write(lambda change: stop_awaiting(change, at, site, "presented"))
            log.event("checkpoint-presented", site=site)

    def _contains(self, checkpoint: Checkpoint) -> bool:
        self._catch_up()
        losses = accepted_losses(self._store.reader, self._keys, self._config.federation)
        return checkpoint.is_in(self._digests) or any(one.follows(checkpoint) for one in losses)

    def _stop_behind(self, site: str, signed: pb.SignedCheckpoint, checkpoint: Checkpoint) -> NoReturn:
        marker = {
            "site": site,
            "checkpoint": signed.checkpoint_json.decode(),
            "signature": signed.signature.hex(),
            "at_ms": self._clock(),
        }
        log.log_error("ledger-behind", site=site, here=len(self._digests), there=checkpoint.size)
        try:
            write_secret(self._config.files.marker, json.dumps(marker, indent=2, sort_keys=True).encode())
        finally:  # also if the marker cannot be written
            self._fatal(self._behind_error(site, checkpoint))

    def _refuse_if_behind(self) -> None:
        path = self._config.files.marker
        if not path.exists():
            return
        site, signed = read_marker(path)
        checkpoint = read_checkpoint(signed, self._keys, self._config.federation)
        if not self._contains(checkpoint):
            raise self._behind_error(site, checkpoint)
        path.unlink()
        log.event("ledger-complete-again", site=site)

    def _behind_error(self, site: str, checkpoint: Checkpoint) -> InternalError:
        return InternalError(
            Code.STORAGE,
            f"site {site} has a signed checkpoint of {checkpoint.size} rows that is not in this ledger of "
            f"{len(self._digests)} rows: the ledger was restored to an older state. "
            "Restore a newer backup; if there is none, run: "
            "eigenveil-coordinator accept-loss --config FILE",
        )


def read_marker(path: Path) -> tuple[str, pb.SignedCheckpoint]:
    """Return the site that presented the marker's checkpoint, and the checkpoint."""
    try:
        document = parse_json(read(path))
        return str(document["site"]), pb.SignedCheckpoint(
            checkpoint_json=document["checkpoint"].encode(), signature=bytes.fromhex(document["signature"])
        )
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise RequestError(
            Code.BAD_CONFIG, f"{path} is damaged; do not delete it, and restore the newest backup"
        ) from problem


def awaited_sites(reader: Database) -> list[str]:
    """Return the sites whose checkpoint is awaited since a restore, without those denied meanwhile."""
    rows = reader.rows(
        "SELECT site FROM awaited_checkpoints WHERE NOT EXISTS "
        "(SELECT 1 FROM denied d WHERE (d.role, d.name) = (?, site)) ORDER BY site",
        (Role.SITE.value,),
    )
    return [row["site"] for row in rows]


def await_checkpoints(change: Connection, sites: Iterable[str]) -> None:
    """Open no round until these sites have presented their checkpoints. Stored greeting generations are
    deleted: the sites hold later ones."""
    change.execute("DELETE FROM awaited_checkpoints")
    for site in sites:
        change.execute("INSERT INTO awaited_checkpoints VALUES (?)", (site,))
    change.execute("UPDATE greetings SET generation = NULL")


def stop_awaiting(change: Connection, at: int, site: str, why: str) -> None:
    change.execute("DELETE FROM awaited_checkpoints WHERE site = ?", (site,))
    audit(change, at, "checkpoint", f"site/{site}", why)


def accepted_losses(reader: Database, keys: Keys, federation: str) -> list[Checkpoint]:
    """Return the checkpoints of lost ledgers that the operator has accepted and that are charged."""
    rows = reader.rows("SELECT head, signature FROM accepted_losses ORDER BY at, digest")
    signed = (pb.SignedCheckpoint(checkpoint_json=head, signature=signature) for head, signature in rows)
    return [read_checkpoint(one, keys, federation) for one in signed]


def read_checkpoint(signed: pb.SignedCheckpoint, keys: Keys, federation: str) -> Checkpoint:
    """Return a checkpoint that this coordinator signed."""
    checkpoint = verify_checkpoint(signed.checkpoint_json, signed.signature, keys.known_release_keys)
    if checkpoint.federation != federation:
        raise PeerError(
            Code.PROTOCOL, f"the checkpoint is of federation {checkpoint.federation}, not of {federation}"
        )
    return checkpoint
