"""The studies under way: one session each, the course of its rounds, what sites contribute to them.
Imports storage, planning, keys and recovery; knows of no connection."""
