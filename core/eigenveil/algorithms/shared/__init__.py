"""Steps that several algorithms take: the count, the mean and the radius, passes over batches, public bounds."""
