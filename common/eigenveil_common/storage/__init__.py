"""A database of one writer, on SQLite or PostgreSQL, and the ledger in it. Imports nothing of what it stores
for: server and client bring their tables."""
