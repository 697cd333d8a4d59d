"""The studies under way: one session each, what drives its rounds, what sites contribute to them.
Imports storage, planning, keys and recovery; knows of no connection."""
