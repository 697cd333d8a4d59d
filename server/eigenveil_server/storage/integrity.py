"""Whether the database is as it was written: pages and indexes, then whatever is kept under its own digest.

The ledger's chain is replayed apart from this, wherever it is opened. What is kept of studies is checked also
where it is read, so a coordinator starts once those that go on are whole: many others may have ended.
"""

from __future__ import annotations

from eigenveil_server.storage.database import Store
from eigenveil_server.storage.digests import attempt_of, check_plan, check_question
from eigenveil_server.storage.study_reads import Studies


def check_start(store: Store) -> None:
    """Look at every page, and at the plans, questions and sealed rounds of studies that have not ended.

    Raises:
        InternalError: code `storage`, one is not what was written.
    """
    store.check_whole()
    studies = Studies(store.reader)
    for stored in studies.under_way():
        _check_study(store, studies, stored.digest)


def check_whole(store: Store) -> None:
    """Look at every page, and at every study there is. Raises as `check_start`."""
    store.check_whole()
    studies = Studies(store.reader)
    for row in store.reader.rows("SELECT digest FROM studies ORDER BY submitted_at"):
        _check_study(store, studies, row["digest"])


def _check_study(store: Store, studies: Studies, study: str) -> None:
    check_plan(study, studies.get(study).plan_json)
    studies.sealed_rounds(study)
    studies.release_json(study)
    for row in store.reader.rows("SELECT query, query_digest FROM rounds WHERE study = ?", (study,)):
        check_question(study, row["query"], row["query_digest"])
    for row in store.reader.rows("SELECT said, digest FROM attempts WHERE study = ?", (study,)):
        attempt_of(study, row["said"], row["digest"])
