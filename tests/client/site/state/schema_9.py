"""What the next version made of an older state, when analysts began to sign: its step, to the letter."""

from __future__ import annotations

VERSION = 9
STEP = """
ALTER TABLE studies ADD COLUMN authorization BLOB NOT NULL DEFAULT x'';
CREATE TABLE submissions (
  analyst TEXT NOT NULL,
  submission TEXT NOT NULL,
  plan TEXT NOT NULL,
  PRIMARY KEY (analyst, submission)
) STRICT;
INSERT OR IGNORE INTO submissions
  SELECT json_extract(CAST(plan_json AS TEXT), '$.analyst'),
    json_extract(CAST(plan_json AS TEXT), '$.submission'), plan
  FROM studies WHERE standing != 'declined' ORDER BY at, plan;
CREATE TABLE declined (
  number INTEGER PRIMARY KEY,
  plan TEXT NOT NULL UNIQUE,
  reason TEXT NOT NULL,
  at INTEGER NOT NULL,
  ended INTEGER NOT NULL
) STRICT;
CREATE TABLE decline_counts (
  day TEXT NOT NULL,
  analyst TEXT NOT NULL,
  rule TEXT NOT NULL,
  plans INTEGER NOT NULL,
  PRIMARY KEY (day, analyst, rule)
) STRICT;
"""
