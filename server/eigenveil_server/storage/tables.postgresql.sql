-- The coordinator's tables beside the ledger. tables.sqlite.sql says the same. What a release is made of is
-- stored EXTERNAL, uncompressed: how well it is compressed would depend on the draw of its noise.
CREATE TABLE tokens (
  hash BYTEA PRIMARY KEY,
  role TEXT COLLATE "C" NOT NULL,
  name TEXT COLLATE "C" NOT NULL,
  device TEXT COLLATE "C" NOT NULL DEFAULT '',
  expires_at BIGINT NOT NULL,
  key_print TEXT COLLATE "C",
  certificate BYTEA
);
CREATE TABLE certificates (
  fingerprint TEXT COLLATE "C" PRIMARY KEY,
  role TEXT COLLATE "C" NOT NULL,
  name TEXT COLLATE "C" NOT NULL,
  device TEXT COLLATE "C" NOT NULL DEFAULT '',
  issued_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  superseded BIGINT NOT NULL DEFAULT 0,
  renewal_unused BIGINT NOT NULL,
  issuer TEXT COLLATE "C" NOT NULL,
  key_print TEXT COLLATE "C" NOT NULL,
  certificate BYTEA NOT NULL
);
CREATE TABLE greetings (
  role TEXT COLLATE "C" NOT NULL,
  name TEXT COLLATE "C" NOT NULL,
  authorities BYTEA NOT NULL,
  generation BYTEA,
  PRIMARY KEY (role, name)
);
CREATE INDEX certificates_by_name ON certificates (role, name);
CREATE TABLE statements (
  site TEXT COLLATE "C" PRIMARY KEY,
  statement BYTEA NOT NULL
);
CREATE TABLE capabilities (
  site TEXT COLLATE "C" PRIMARY KEY,
  capabilities BYTEA NOT NULL,
  at BIGINT NOT NULL
);
CREATE TABLE dictionaries (
  version BIGINT PRIMARY KEY,
  signed_json BYTEA NOT NULL,
  signature BYTEA NOT NULL,
  at BIGINT NOT NULL
);
CREATE TABLE denied (
  role TEXT COLLATE "C" NOT NULL,
  name TEXT COLLATE "C" NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (role, name)
);
CREATE TABLE studies (
  digest TEXT COLLATE "C" PRIMARY KEY,
  name TEXT COLLATE "C" NOT NULL,
  analyst TEXT COLLATE "C" NOT NULL,
  submission TEXT COLLATE "C" NOT NULL,
  plan_json BYTEA NOT NULL,
  signature BYTEA NOT NULL,
  micro_rho BIGINT NOT NULL,
  expected_rounds BIGINT NOT NULL,
  state TEXT COLLATE "C" NOT NULL,
  failure TEXT COLLATE "C" NOT NULL DEFAULT '',
  submitted_at BIGINT NOT NULL,
  site_rules_json TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  started_at BIGINT NOT NULL DEFAULT 0,
  authorization_json TEXT COLLATE "C" NOT NULL DEFAULT '',
  ended_at BIGINT,
  release BYTEA,
  UNIQUE (analyst, submission)
);
CREATE TABLE release_pieces (
  study TEXT COLLATE "C" NOT NULL REFERENCES studies (digest),
  piece BIGINT NOT NULL,
  data BYTEA NOT NULL,
  PRIMARY KEY (study, piece)
);
CREATE INDEX studies_by_state ON studies (state, analyst);
CREATE INDEX studies_by_time ON studies (submitted_at, digest);
CREATE TABLE submissions (
  study TEXT COLLATE "C" PRIMARY KEY REFERENCES studies (digest),
  analyst TEXT COLLATE "C" NOT NULL,
  at BIGINT NOT NULL,
  bytes BIGINT NOT NULL,
  content TEXT COLLATE "C",
  atto_delta TEXT COLLATE "C",
  epsilon DOUBLE PRECISION,
  signer TEXT COLLATE "C" NOT NULL DEFAULT ''
);
CREATE INDEX submissions_by_analyst ON submissions (analyst, at, bytes);
CREATE TABLE consents (
  study TEXT COLLATE "C" NOT NULL REFERENCES studies (digest),
  site TEXT COLLATE "C" NOT NULL,
  status TEXT COLLATE "C" NOT NULL,
  reason TEXT COLLATE "C" NOT NULL,
  text TEXT COLLATE "C" NOT NULL,
  starts_at BIGINT NOT NULL,
  at BIGINT NOT NULL,
  rule TEXT COLLATE "C" NOT NULL DEFAULT '',
  PRIMARY KEY (study, site)
);
CREATE TABLE rounds (
  study TEXT COLLATE "C" NOT NULL REFERENCES studies (digest),
  round BIGINT NOT NULL,
  kind TEXT COLLATE "C" NOT NULL,
  state TEXT COLLATE "C" NOT NULL,
  query BYTEA NOT NULL,
  query_digest TEXT COLLATE "C" NOT NULL,
  opened_at BIGINT NOT NULL,
  released_at BIGINT,
  absent TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  PRIMARY KEY (study, round)
);
CREATE TABLE study_keys (
  study TEXT COLLATE "C" NOT NULL REFERENCES studies (digest),
  digest TEXT COLLATE "C" NOT NULL,
  site TEXT COLLATE "C" NOT NULL,
  signed_json BYTEA NOT NULL,
  signature BYTEA NOT NULL,
  PRIMARY KEY (study, digest)
);
CREATE TABLE attempts (
  study TEXT COLLATE "C" NOT NULL,
  round BIGINT NOT NULL,
  number BIGINT NOT NULL,
  digest TEXT COLLATE "C" NOT NULL,
  signed_json BYTEA NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (study, round, number),
  FOREIGN KEY (study, round) REFERENCES rounds (study, round)
);
CREATE TABLE answers (
  study TEXT COLLATE "C" NOT NULL,
  round BIGINT NOT NULL,
  attempt BIGINT NOT NULL,
  site TEXT COLLATE "C" NOT NULL,
  mac BYTEA,
  declined TEXT COLLATE "C",
  PRIMARY KEY (study, round, attempt, site),
  FOREIGN KEY (study, round) REFERENCES rounds (study, round)
);
CREATE TABLE releases (
  study TEXT COLLATE "C" NOT NULL,
  round BIGINT NOT NULL,
  query TEXT COLLATE "C" NOT NULL,
  "values" BYTEA NOT NULL,
  sigma DOUBLE PRECISION NOT NULL,
  micro_rho BIGINT NOT NULL,
  atto_delta TEXT COLLATE "C" NOT NULL,
  present TEXT COLLATE "C" NOT NULL,
  digest TEXT COLLATE "C" NOT NULL,
  signed_json BYTEA NOT NULL,
  signature BYTEA NOT NULL,
  piece_key BYTEA,
  PRIMARY KEY (study, round),
  FOREIGN KEY (study, round) REFERENCES rounds (study, round)
);
CREATE TABLE releases_continued (
  study TEXT COLLATE "C" NOT NULL,
  round BIGINT NOT NULL,
  piece BIGINT NOT NULL,
  "values" BYTEA NOT NULL,
  PRIMARY KEY (study, round, piece),
  FOREIGN KEY (study, round) REFERENCES releases (study, round)
);
CREATE TABLE sealed_pieces (
  study TEXT COLLATE "C" NOT NULL,
  round BIGINT NOT NULL,
  piece BIGINT NOT NULL,
  data BYTEA NOT NULL,
  PRIMARY KEY (study, round, piece),
  FOREIGN KEY (study, round) REFERENCES rounds (study, round)
);
ALTER TABLE releases ALTER COLUMN "values" SET STORAGE EXTERNAL;
ALTER TABLE releases ALTER COLUMN signed_json SET STORAGE EXTERNAL;
ALTER TABLE releases_continued ALTER COLUMN "values" SET STORAGE EXTERNAL;
ALTER TABLE studies ALTER COLUMN release SET STORAGE EXTERNAL;
ALTER TABLE release_pieces ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE sealed_pieces ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TRIGGER a_set_of_sites_never_changes BEFORE UPDATE ON attempts
  FOR EACH ROW EXECUTE FUNCTION refuse('the set of sites of an attempt never changes');
CREATE TRIGGER a_set_of_sites_is_never_deleted BEFORE DELETE ON attempts
  FOR EACH ROW EXECUTE FUNCTION refuse('the set of sites of an attempt is never deleted');
CREATE TRIGGER a_set_of_sites_is_never_deleted_all BEFORE TRUNCATE ON attempts
  FOR EACH STATEMENT EXECUTE FUNCTION refuse('the set of sites of an attempt is never deleted');
CREATE TRIGGER a_sealed_release_never_changes BEFORE UPDATE ON releases
  FOR EACH ROW EXECUTE FUNCTION refuse('a sealed release never changes');
CREATE TRIGGER a_sealed_release_is_never_deleted BEFORE DELETE ON releases
  FOR EACH ROW EXECUTE FUNCTION refuse('a sealed release is never deleted');
CREATE TRIGGER a_sealed_release_is_never_deleted_all BEFORE TRUNCATE ON releases
  FOR EACH STATEMENT EXECUTE FUNCTION refuse('a sealed release is never deleted');
CREATE TRIGGER a_continued_release_never_changes BEFORE UPDATE ON releases_continued
  FOR EACH ROW EXECUTE FUNCTION refuse('a sealed release never changes');
CREATE TRIGGER a_continued_release_is_never_deleted BEFORE DELETE ON releases_continued
  FOR EACH ROW EXECUTE FUNCTION refuse('a sealed release is never deleted');
CREATE TRIGGER a_continued_release_is_never_deleted_all BEFORE TRUNCATE ON releases_continued
  FOR EACH STATEMENT EXECUTE FUNCTION refuse('a sealed release is never deleted');
CREATE FUNCTION refuse_if_sealed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF EXISTS (
    SELECT 1 FROM releases
    WHERE (study, round) = (NEW.study, NEW.round)
    OR TG_OP = 'UPDATE' AND (study, round) = (OLD.study, OLD.round)
  ) THEN RAISE EXCEPTION 'a sealed release never changes'; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER a_sealed_release_gets_no_piece BEFORE INSERT ON sealed_pieces
  FOR EACH ROW EXECUTE FUNCTION refuse_if_sealed();
CREATE TRIGGER a_sealed_piece_never_changes BEFORE UPDATE ON sealed_pieces
  FOR EACH ROW EXECUTE FUNCTION refuse_if_sealed();
CREATE TRIGGER a_sealed_piece_is_never_deleted BEFORE DELETE ON sealed_pieces
  FOR EACH ROW EXECUTE FUNCTION refuse('a sealed release is never deleted');
CREATE TRIGGER a_sealed_piece_is_never_deleted_all BEFORE TRUNCATE ON sealed_pieces
  FOR EACH STATEMENT EXECUTE FUNCTION refuse('a sealed release is never deleted');
CREATE TABLE events (
  study TEXT COLLATE "C" NOT NULL REFERENCES studies (digest),
  sequence BIGINT NOT NULL,
  event BYTEA NOT NULL,
  PRIMARY KEY (study, sequence)
);
CREATE TABLE awaited_checkpoints (
  site TEXT COLLATE "C" PRIMARY KEY
);
CREATE TABLE accepted_losses (
  digest TEXT COLLATE "C" PRIMARY KEY,
  head BYTEA NOT NULL,
  signature BYTEA NOT NULL,
  at BIGINT NOT NULL
);
CREATE TABLE audit (
  id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  at BIGINT NOT NULL,
  kind TEXT COLLATE "C" NOT NULL,
  subject TEXT COLLATE "C" NOT NULL,
  detail TEXT COLLATE "C" NOT NULL
);
CREATE INDEX audit_by_subject ON audit (kind, subject);
