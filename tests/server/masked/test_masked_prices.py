"""[P33] What an attempt is charged: every time in full, and a pass over disjoint batches once a number."""

from __future__ import annotations

from eigenveil.accounting.ledger import replay
from eigenveil.accounting.zcdp import NO_COST, Cost
from eigenveil.identity import Role
from eigenveil.numerics.encoding import digest
from eigenveil.planning.choose import possible_rehearsals
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.wire import query_to_proto
from eigenveil.queries import batch_of
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil_server.recovery.accept_loss import cost_of_loss
from eigenveil_server.recovery.checkpoints import read_checkpoint
from eigenveil_server.rounds.drivers import cost_of_attempt
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.repository import Repository
from tests.server.masked.sites import charges_of, masked_toml
from tests.server.rig import FEDERATION, SITES, Client, Rig
from tests.support import changed_query

CARDS = {site: digest("test-key", site) for site in SITES}


def tried(repository: Repository, round_query: RoundQuery, times: int, pool: Cost) -> None:
    """Open a question, and charge so many attempts at it."""
    with repository.store.writer.transaction() as change:
        study_writes.open_round(change, round_query, query_to_proto(round_query).SerializeToString(), 0)
    for number in range(1, times + 1):
        attempt = Attempt.at(round_query, number, CARDS)
        repository.ledger.attempt(
            round_query,
            cost_of_attempt(round_query, number, repository),
            pool,
            lambda change, tip, attempt=attempt: study_writes.store_attempt(change, attempt, 0),  # type: ignore[misc]
        )


async def test_a_pass_is_paid_once_for_each_number_of_an_attempt(rig: Rig, ada: Client) -> None:
    toml = masked_toml(spares=2, algorithm="private-oja", components=1)
    toml = f"batches = 4\n{toml}".replace("[records]", "[records]\nexpected_records = 400")
    for site in SITES:
        await rig.credentials(Role.SITE, site)
    digest, repository = await ada.submit(toml, agreed=False), rig.repository
    plan = repository.studies.plan_of(repository.studies.get(digest))
    (path,) = possible_rehearsals(plan)
    batches = [one for one in path if batch_of(one.query) is not None]
    assert len(batches) == 4
    (charge,) = {one.priced.cost for one in batches}
    for round_query, times in zip(batches, (1, 2, 3, 2), strict=True):
        tried(repository, round_query, times, plan.spare_cost)
    first = batches[0].round
    paid = [(round - first, rho // charge.micro_rho) for round, _, rho in charges_of(rig, digest)]
    assert paid == [(0, 1), (1, 0), (1, 1), (2, 0), (2, 0), (2, 1), (3, 0), (3, 0)]
    ledger = repository.ledger.ledger
    assert ledger.spent == Cost(micro_rho=3 * charge.micro_rho, atto_delta=3 * charge.atto_delta)
    assert replay(ledger.budget, repository.ledger.entries()).spent == ledger.spent
    await rig.daemon.checkpoints.refresh()
    signed, entries = rig.daemon.checkpoints.checkpoint_if_newer(b""), repository.ledger.entries()
    assert signed is not None
    checkpoint = read_checkpoint(signed, rig.daemon.runtime.keys, FEDERATION)
    assert checkpoint.committed == ledger.committed()
    shared = checkpoint.last_shared_row([one.digest for one in entries])
    assert any(one.kind.spends for one in entries[:shared])
    assert cost_of_loss(checkpoint, entries, []) == sum(
        (one.cost for one in entries[shared:] if one.kind.spends), sum(ledger.reserved.values(), NO_COST)
    )
    cheaper = changed_query(batches[3], micro_rho=1)
    assert cost_of_attempt(cheaper, 4, repository) == charge, "whichever batch is first to need that number"
    assert cost_of_attempt(path[0], 2, repository) == path[0].priced.cost
