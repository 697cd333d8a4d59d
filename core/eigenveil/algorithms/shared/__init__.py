"""Common steps of the algorithms: count, mean and radius, passes over batches, public bounds."""
