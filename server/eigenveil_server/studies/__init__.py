"""Running studies: one session each, its consents, rounds and contributions; no access to connections."""
