-- The coordinator's tables beside the ledger. tables.postgresql.sql says the same.
CREATE TABLE tokens (
  hash BLOB PRIMARY KEY,
  role TEXT NOT NULL,
  name TEXT NOT NULL,
  device TEXT NOT NULL DEFAULT '',
  expires_at INTEGER NOT NULL,
  key_print TEXT,
  certificate BLOB
) STRICT;
CREATE TABLE certificates (
  fingerprint TEXT PRIMARY KEY,
  role TEXT NOT NULL,
  name TEXT NOT NULL,
  device TEXT NOT NULL DEFAULT '',
  issued_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  superseded INTEGER NOT NULL DEFAULT 0,
  renewal_unused INTEGER NOT NULL,
  issuer TEXT NOT NULL,
  key_print TEXT NOT NULL,
  certificate BLOB NOT NULL
) STRICT;
CREATE TABLE greetings (
  role TEXT NOT NULL,
  name TEXT NOT NULL,
  authorities BLOB NOT NULL,
  generation BLOB,
  PRIMARY KEY (role, name)
) STRICT;
CREATE INDEX certificates_by_name ON certificates (role, name);
CREATE TABLE statements (
  site TEXT PRIMARY KEY,
  statement BLOB NOT NULL
) STRICT;
CREATE TABLE capabilities (
  site TEXT PRIMARY KEY,
  capabilities BLOB NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE TABLE dictionaries (
  version INTEGER PRIMARY KEY,
  signed_json BLOB NOT NULL,
  signature BLOB NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE TABLE denied (
  role TEXT NOT NULL,
  name TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (role, name)
) STRICT;
CREATE TABLE studies (
  digest TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  analyst TEXT NOT NULL,
  submission TEXT NOT NULL,
  plan_json BLOB NOT NULL,
  signature BLOB NOT NULL,
  micro_rho INTEGER NOT NULL,
  expected_rounds INTEGER NOT NULL,
  state TEXT NOT NULL,
  failure TEXT NOT NULL DEFAULT '',
  submitted_at INTEGER NOT NULL,
  site_rules_json TEXT NOT NULL DEFAULT '{}',
  started_at INTEGER NOT NULL DEFAULT 0,
  authorization_json TEXT NOT NULL DEFAULT '',
  ended_at INTEGER,
  release BLOB,
  UNIQUE (analyst, submission)
) STRICT;
CREATE TABLE release_pieces (
  study TEXT NOT NULL REFERENCES studies (digest),
  piece INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (study, piece)
) STRICT;
CREATE INDEX studies_by_state ON studies (state, analyst);
CREATE INDEX studies_by_time ON studies (
  submitted_at, digest, name, analyst, submission, micro_rho, expected_rounds, state, failure
);
CREATE TABLE submissions (
  study TEXT PRIMARY KEY REFERENCES studies (digest),
  analyst TEXT NOT NULL,
  at INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  content TEXT,
  atto_delta TEXT,
  epsilon REAL,
  signer TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX submissions_by_analyst ON submissions (analyst, at, bytes);
CREATE TABLE consents (
  study TEXT NOT NULL REFERENCES studies (digest),
  site TEXT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT NOT NULL,
  text TEXT NOT NULL,
  starts_at INTEGER NOT NULL,
  at INTEGER NOT NULL,
  rule TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (study, site)
) STRICT;
CREATE TABLE rounds (
  study TEXT NOT NULL REFERENCES studies (digest),
  round INTEGER NOT NULL,
  kind TEXT NOT NULL,
  state TEXT NOT NULL,
  query BLOB NOT NULL,
  query_digest TEXT NOT NULL,
  opened_at INTEGER NOT NULL,
  released_at INTEGER,
  absent TEXT NOT NULL DEFAULT '{}',
  PRIMARY KEY (study, round)
) STRICT;
CREATE TABLE study_keys (
  study TEXT NOT NULL REFERENCES studies (digest),
  digest TEXT NOT NULL,
  site TEXT NOT NULL,
  signed_json BLOB NOT NULL,
  signature BLOB NOT NULL,
  PRIMARY KEY (study, digest)
) STRICT;
CREATE TABLE attempts (
  study TEXT NOT NULL,
  round INTEGER NOT NULL,
  number INTEGER NOT NULL,
  digest TEXT NOT NULL,
  signed_json BLOB NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (study, round, number),
  FOREIGN KEY (study, round) REFERENCES rounds (study, round)
) STRICT;
CREATE TABLE answers (
  study TEXT NOT NULL,
  round INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  site TEXT NOT NULL,
  mac BLOB,
  declined TEXT,
  PRIMARY KEY (study, round, attempt, site),
  FOREIGN KEY (study, round) REFERENCES rounds (study, round)
) STRICT;
CREATE TABLE releases (
  study TEXT NOT NULL,
  round INTEGER NOT NULL,
  query TEXT NOT NULL,
  "values" BLOB NOT NULL,
  sigma REAL NOT NULL,
  micro_rho INTEGER NOT NULL,
  atto_delta TEXT NOT NULL,
  present TEXT NOT NULL,
  digest TEXT NOT NULL,
  signed_json BLOB NOT NULL,
  signature BLOB NOT NULL,
  piece_key BLOB,
  PRIMARY KEY (study, round),
  FOREIGN KEY (study, round) REFERENCES rounds (study, round)
) STRICT;
CREATE TABLE releases_continued (
  study TEXT NOT NULL,
  round INTEGER NOT NULL,
  piece INTEGER NOT NULL,
  "values" BLOB NOT NULL,
  PRIMARY KEY (study, round, piece),
  FOREIGN KEY (study, round) REFERENCES releases (study, round)
) STRICT;
CREATE TABLE sealed_pieces (
  study TEXT NOT NULL,
  round INTEGER NOT NULL,
  piece INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (study, round, piece),
  FOREIGN KEY (study, round) REFERENCES rounds (study, round)
) STRICT;
CREATE TRIGGER a_set_of_sites_never_changes BEFORE UPDATE ON attempts
  BEGIN SELECT RAISE(ABORT, 'the set of sites of an attempt never changes'); END;
CREATE TRIGGER a_set_of_sites_is_never_deleted BEFORE DELETE ON attempts
  BEGIN SELECT RAISE(ABORT, 'the set of sites of an attempt is never deleted'); END;
CREATE TRIGGER a_sealed_release_never_changes BEFORE UPDATE ON releases
  BEGIN SELECT RAISE(ABORT, 'a sealed release never changes'); END;
CREATE TRIGGER a_sealed_release_is_never_deleted BEFORE DELETE ON releases
  BEGIN SELECT RAISE(ABORT, 'a sealed release is never deleted'); END;
CREATE TRIGGER a_continued_release_never_changes BEFORE UPDATE ON releases_continued
  BEGIN SELECT RAISE(ABORT, 'a sealed release never changes'); END;
CREATE TRIGGER a_continued_release_is_never_deleted BEFORE DELETE ON releases_continued
  BEGIN SELECT RAISE(ABORT, 'a sealed release is never deleted'); END;
CREATE TRIGGER a_sealed_release_gets_no_piece BEFORE INSERT ON sealed_pieces
  WHEN EXISTS (SELECT 1 FROM releases WHERE (study, round) = (NEW.study, NEW.round))
  BEGIN SELECT RAISE(ABORT, 'a sealed release never changes'); END;
CREATE TRIGGER a_sealed_piece_never_changes BEFORE UPDATE ON sealed_pieces
  WHEN EXISTS (
    SELECT 1 FROM releases
    WHERE (study, round) = (OLD.study, OLD.round) OR (study, round) = (NEW.study, NEW.round)
  )
  BEGIN SELECT RAISE(ABORT, 'a sealed release never changes'); END;
CREATE TRIGGER a_sealed_piece_is_never_deleted BEFORE DELETE ON sealed_pieces
  BEGIN SELECT RAISE(ABORT, 'a sealed release is never deleted'); END;
CREATE TABLE events (
  study TEXT NOT NULL REFERENCES studies (digest),
  sequence INTEGER NOT NULL,
  event BLOB NOT NULL,
  PRIMARY KEY (study, sequence)
) STRICT;
CREATE TABLE awaited_checkpoints (
  site TEXT PRIMARY KEY
) STRICT;
CREATE TABLE accepted_losses (
  digest TEXT PRIMARY KEY,
  head BLOB NOT NULL,
  signature BLOB NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE TABLE audit (
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail TEXT NOT NULL
) STRICT;
CREATE INDEX audit_by_subject ON audit (kind, subject);
