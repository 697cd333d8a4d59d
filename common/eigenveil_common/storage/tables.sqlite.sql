-- The ledger, as in tables.postgresql.sql.
CREATE TABLE ledger (
  "index" INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  study TEXT NOT NULL,
  round INTEGER NOT NULL,
  query TEXT NOT NULL,
  micro_rho INTEGER NOT NULL,
  atto_delta TEXT NOT NULL,
  at INTEGER NOT NULL,
  previous TEXT NOT NULL UNIQUE,
  digest TEXT NOT NULL UNIQUE
) STRICT;
CREATE TRIGGER ledger_is_append_only_update BEFORE UPDATE ON ledger
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_is_append_only_delete BEFORE DELETE ON ledger
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
