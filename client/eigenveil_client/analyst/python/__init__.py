"""Python interface of a federation, returned by `eigenveil.connect()` and used by the commands.

It prints nothing but the progress of a study during `wait`."""
