"""A site's state as the version before analysts signed made it: the columns of its tables, and plans."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict

from eigenveil.protocol.plan import Plan
from eigenveil_client.site.state.egress import KeyedDigests
from eigenveil_client.site.state.received_plans import ConsentStatus, ReceivedPlan
from eigenveil_common.storage.sqlite import SqliteDatabase
from tests.client.site.support import Stage

VERSION = 8
SCHEMA = """
-- The ledger. tables.postgresql.sql says the same.
CREATE TABLE ledger (
  "index" INTEGER PRIMARY KEY, kind TEXT NOT NULL, study TEXT NOT NULL, round INTEGER NOT NULL,
  query TEXT NOT NULL, micro_rho INTEGER NOT NULL, atto_delta TEXT NOT NULL, at INTEGER NOT NULL,
  previous TEXT NOT NULL UNIQUE, digest TEXT NOT NULL UNIQUE
) STRICT;
CREATE TRIGGER ledger_is_append_only_update BEFORE UPDATE ON ledger
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_is_append_only_delete BEFORE DELETE ON ledger
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TABLE egress (
  "index" INTEGER PRIMARY KEY, at INTEGER NOT NULL, study TEXT NOT NULL, round INTEGER NOT NULL,
  kind TEXT NOT NULL, bytes INTEGER NOT NULL, contribution TEXT NOT NULL, query TEXT NOT NULL,
  attempt TEXT NOT NULL, meaning TEXT NOT NULL, previous TEXT NOT NULL UNIQUE,
  digest TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE questions (digest TEXT PRIMARY KEY, message BLOB NOT NULL) STRICT;
CREATE TRIGGER egress_is_append_only_update BEFORE UPDATE ON egress
  BEGIN SELECT RAISE(ABORT, 'the egress ledger is append-only'); END;
CREATE TRIGGER egress_is_append_only_delete BEFORE DELETE ON egress
  BEGIN SELECT RAISE(ABORT, 'the egress ledger is append-only'); END;
CREATE TABLE chatter (
  day TEXT NOT NULL, kind TEXT NOT NULL, messages INTEGER NOT NULL, bytes INTEGER NOT NULL,
  at INTEGER NOT NULL, PRIMARY KEY (day, kind)
) STRICT;
CREATE TABLE studies (
  plan TEXT PRIMARY KEY, plan_json BLOB NOT NULL, signature BLOB NOT NULL, standing TEXT NOT NULL,
  reason TEXT NOT NULL, records TEXT NOT NULL, at INTEGER NOT NULL, person TEXT NOT NULL,
  said_by TEXT NOT NULL, said_at INTEGER NOT NULL, word TEXT NOT NULL, text TEXT NOT NULL,
  told INTEGER NOT NULL
) STRICT;
CREATE TABLE heads (
  place TEXT PRIMARY KEY, head BLOB NOT NULL, signature BLOB NOT NULL, size INTEGER NOT NULL,
  digest TEXT NOT NULL
) STRICT;
CREATE TABLE rounds (
  plan TEXT NOT NULL, round INTEGER NOT NULL, query TEXT NOT NULL, release TEXT NOT NULL,
  followed INTEGER NOT NULL, message BLOB NOT NULL, digest TEXT NOT NULL,
  PRIMARY KEY (plan, round, query, release, followed)
) STRICT;
CREATE TRIGGER a_stated_round_never_changes BEFORE UPDATE ON rounds
  BEGIN SELECT RAISE(ABORT, 'a stated round never changes'); END;
CREATE TRIGGER a_stated_round_is_never_deleted BEFORE DELETE ON rounds
  BEGIN SELECT RAISE(ABORT, 'a stated round is never deleted'); END;
CREATE TABLE passes (
  plan TEXT NOT NULL, first INTEGER NOT NULL, time INTEGER NOT NULL, round INTEGER NOT NULL,
  PRIMARY KEY (plan, first, time)
) STRICT;
CREATE TABLE attempts (
  plan TEXT NOT NULL, round INTEGER NOT NULL, number INTEGER NOT NULL, digest TEXT NOT NULL,
  said BLOB NOT NULL, signature BLOB NOT NULL, contribution TEXT NOT NULL, bytes INTEGER NOT NULL,
  PRIMARY KEY (plan, round, number)
) STRICT;
CREATE TABLE masked_answers (
  plan TEXT NOT NULL, round INTEGER NOT NULL, number INTEGER NOT NULL, piece INTEGER NOT NULL,
  "values" BLOB NOT NULL, PRIMARY KEY (plan, round, number, piece)
) STRICT;
CREATE TABLE refused_attempts (
  plan TEXT NOT NULL, round INTEGER NOT NULL, digest TEXT NOT NULL, said BLOB NOT NULL,
  signature BLOB NOT NULL, PRIMARY KEY (plan, round, digest)
) STRICT;
CREATE TRIGGER an_answered_attempt_never_changes BEFORE UPDATE ON attempts
  BEGIN SELECT RAISE(ABORT, 'an answered attempt never changes'); END;
CREATE TRIGGER an_answered_attempt_is_never_deleted BEFORE DELETE ON attempts
  BEGIN SELECT RAISE(ABORT, 'an answered attempt is never deleted'); END;
"""
# What the next version made of it, when analysts began to sign: its step, to the letter.
NEXT_VERSION = 9
STEP = """
ALTER TABLE studies ADD COLUMN authorization BLOB NOT NULL DEFAULT x'';
CREATE TABLE submissions (
  analyst TEXT NOT NULL, submission TEXT NOT NULL, plan TEXT NOT NULL,
  PRIMARY KEY (analyst, submission)
) STRICT;
INSERT OR IGNORE INTO submissions
  SELECT json_extract(CAST(plan_json AS TEXT), '$.analyst'),
    json_extract(CAST(plan_json AS TEXT), '$.submission'), plan
  FROM studies WHERE standing != 'declined' ORDER BY at, plan;
CREATE TABLE declined (
  number INTEGER PRIMARY KEY, plan TEXT NOT NULL UNIQUE, reason TEXT NOT NULL, at INTEGER NOT NULL,
  ended INTEGER NOT NULL
) STRICT;
CREATE TABLE decline_counts (
  day TEXT NOT NULL, analyst TEXT NOT NULL, rule TEXT NOT NULL, plans INTEGER NOT NULL,
  PRIMARY KEY (day, analyst, rule)
) STRICT;
"""
NEW_SINCE = ("authorization",)  # columns of a plan that it did not have


def make_older_state(stage: Stage, plans: Mapping[Plan, ConsentStatus]) -> None:
    state = stage.config.state
    KeyedDigests(state.with_name("egress.key"), state)  # makes its key
    with closing(SqliteDatabase(state, SCHEMA, VERSION)) as database, database.transaction() as change:
        for plan, standing in plans.items():
            sent = stage.signed(plan)
            seen = ReceivedPlan(
                plan=plan.digest, plan_json=sent.plan_json, signature=sent.signature, status=standing, at=1
            )
            row = asdict(seen) | {"standing": standing.value}
            change.insert("studies", {name: value for name, value in row.items() if name not in NEW_SINCE})
