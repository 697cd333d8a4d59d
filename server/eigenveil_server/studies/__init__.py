"""Running studies: one session each, its consents, rounds and contributions. Imports storage, planning, keys
and recovery; no access to connections."""
