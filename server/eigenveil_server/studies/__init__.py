"""The studies under way: one session each, its rounds, what sites contribute, what is kept of a round.
Imports storage, planning, keys and recovery; knows of no connection."""
