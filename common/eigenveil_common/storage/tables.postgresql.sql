-- The ledger, as in tables.sqlite.sql; COLLATE "C" sorts TEXT by bytes as there, whatever the server's locale.
CREATE TABLE ledger (
  "index" BIGINT PRIMARY KEY,
  kind TEXT COLLATE "C" NOT NULL,
  study TEXT COLLATE "C" NOT NULL,
  round BIGINT NOT NULL,
  query TEXT COLLATE "C" NOT NULL,
  micro_rho BIGINT NOT NULL,
  atto_delta TEXT COLLATE "C" NOT NULL,
  at BIGINT NOT NULL,
  previous TEXT COLLATE "C" NOT NULL UNIQUE,
  digest TEXT COLLATE "C" NOT NULL UNIQUE
);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
  AS $$ BEGIN RAISE EXCEPTION USING MESSAGE = TG_ARGV[0]; END $$;
CREATE TRIGGER ledger_is_append_only_update BEFORE UPDATE ON ledger
  FOR EACH ROW EXECUTE FUNCTION refuse('the ledger is append-only');
CREATE TRIGGER ledger_is_append_only_delete BEFORE DELETE ON ledger
  FOR EACH ROW EXECUTE FUNCTION refuse('the ledger is append-only');
CREATE TRIGGER ledger_is_append_only_delete_all BEFORE TRUNCATE ON ledger -- which fires no trigger of a row
  FOR EACH STATEMENT EXECUTE FUNCTION refuse('the ledger is append-only');
