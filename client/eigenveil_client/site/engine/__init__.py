"""Where the records of a study are held while it runs, and what computes on them. Imports no daemon, state or
command."""
