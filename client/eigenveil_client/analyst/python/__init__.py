"""A federation in Python: what `eigenveil.connect()` gives, and what the commands are made of. Prints nothing
but the progress of a study that is waited for."""
