"""Storage of the records of running studies, and computation on them. Imports no daemon, state or command."""
