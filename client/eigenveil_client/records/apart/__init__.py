"""Reading in a process of its own: what opens a file of records may die of it, and nothing else does."""
