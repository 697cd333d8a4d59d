"""Accepted losses: what a restored ledger lacks, and its charge [R20]."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from eigenveil.accounting.checkpoint import Checkpoint
from eigenveil.accounting.ledger import LedgerEntry
from eigenveil.accounting.zcdp import NO_COST, Cost
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import digest
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.pki.keys import load_keys
from eigenveil_server.pki.registry import Registry
from eigenveil_server.process import unix_ms
from eigenveil_server.recovery.checkpoints import (
    accepted_losses,
    await_checkpoints,
    read_checkpoint,
    read_marker,
)
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.database import Store, audit, existing_store, lock_folder
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy, Studies

FAILURE_REASON = "the coordinator's ledger was restored to an older state; submit the study again"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLoss:
    """Charge for the lost rows, the studies it ended, and the sites whose checkpoints must arrive first."""

    site: str
    checkpoint: Checkpoint
    charged: Cost
    ended_studies: tuple[str, ...]
    awaited: tuple[str, ...]


def cost_of_loss(
    checkpoint: Checkpoint, entries: Sequence[LedgerEntry], earlier: Iterable[Checkpoint]
) -> Cost:
    """Return an upper bound on what the checkpoint's ledger spent and these entries do not show. It is all
    that `checkpoint` spent or set aside, less one of two known amounts. One is the charges of the rows that
    both ledgers certainly share. The other is an earlier checkpoint that was charged as lost and lies on the
    way to this one. Each difference is a bound, and so is the least of them."""
    shared = checkpoint.last_shared_row([entry.digest for entry in entries])
    charges = (entry.cost for entry in entries[:shared] if entry.kind.spends)
    known = [sum(charges, NO_COST), *(one.committed for one in earlier if checkpoint.follows(one))]
    return Cost(
        micro_rho=max(0, checkpoint.committed.micro_rho - max(one.micro_rho for one in known)),
        atto_delta=max(0, checkpoint.committed.atto_delta - max(one.atto_delta for one in known)),
    )


def accept_loss(config: Config) -> AcceptedLoss:
    """Charge what the later checkpoint shows as spent, once, end running studies, and let the coordinator
    start again. Raises RequestError: the coordinator is serving, no checkpoint is missing, or the budget does
    not cover the loss; PeerError: the marker's checkpoint is not signed by this coordinator."""
    if not config.files.marker.exists():
        raise RequestError(
            Code.CONFLICT, "no site has presented a later checkpoint; there is no loss to accept"
        )
    with lock_folder(config):
        with closing(existing_store(config)) as store:
            store.acquire_server_lock()
            accepted = _accept(config, store)
        config.files.marker.unlink()
    return accepted


def _accept(config: Config, store: Store) -> AcceptedLoss:
    keys, (site, signed) = load_keys(config.files), read_marker(config.files.marker)
    checkpoint = read_checkpoint(signed, keys, config.federation)
    ledger = LedgerStore(store.writer, config.budget, lambda: unix_ms() // 1000)
    ended = _end_running_studies(store, ledger)
    study = digest("lost-charges", {"checkpoint": checkpoint.digest, "size": str(checkpoint.size)})
    cost = ledger.ledger.spent_by(study)
    if cost == NO_COST:
        earlier = accepted_losses(store.reader, keys, config.federation)
        cost = cost_of_loss(checkpoint, ledger.entries(), earlier)
    _charge(ledger, study, checkpoint, cost)
    waiting = tuple(sorted(Registry(store, config.federation, unix_ms).sites()))

    def note(change: Connection) -> None:
        at = unix_ms()
        change.execute(
            "INSERT INTO accepted_losses VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (checkpoint.digest, signed.checkpoint_json, signed.signature, at),
        )
        await_checkpoints(change, waiting)  # another site may have a still later checkpoint
        audit(change, at, "loss-accepted", f"site/{site}", checkpoint.digest)

    ledger.settle(study, note)
    return AcceptedLoss(site=site, checkpoint=checkpoint, charged=cost, ended_studies=ended, awaited=waiting)


def _charge(ledger: LedgerStore, study: str, checkpoint: Checkpoint, cost: Cost) -> None:
    """Charge the loss as a study of one round, whose name and query are the checkpoint's digest."""
    if not ledger.ledger.knows(study):
        try:
            ledger.restore_reservation(study, cost, gaussian=checkpoint.gaussian)
        except RequestError as problem:
            raise RequestError(
                problem.code,
                f"the loss exceeds the remaining budget ({problem}); restore a newer backup, or raise "
                "budget_epsilon in coordinator.toml and repeat this",
            ) from problem
    if study in ledger.ledger.reserved:
        ledger.charge(study, 0, checkpoint.digest, ledger.ledger.reserved[study])


def _end_running_studies(store: Store, ledger: LedgerStore) -> tuple[str, ...]:
    """End running studies: sites have seen their later rounds and would refuse the earlier ones again."""
    running = [one for one in Studies(store.reader).all() if one.state is StudyState.RUNNING]
    for one in running:
        ledger.settle(one.digest, partial(_end_study, one, ledger.spent(one.digest)))
    return tuple(one.digest for one in running)


def _end_study(one: StoredStudy, spent: int, change: Connection) -> None:
    event = pb.StudyEvent(
        state=pb.STUDY_STATE_FAILED, failure=FAILURE_REASON, micro_rho=one.micro_rho, spent_micro_rho=spent,
        expected_rounds=one.expected_rounds, round_state="failed",
    )  # fmt: skip
    study_writes.end_study(change, one.digest, StudyState.FAILED, unix_ms(), failure=FAILURE_REASON)
    study_writes.add_event(change, one.digest, event)
