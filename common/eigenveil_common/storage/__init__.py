"""Single-writer database on SQLite or PostgreSQL with the ledger; server and client add their tables."""
