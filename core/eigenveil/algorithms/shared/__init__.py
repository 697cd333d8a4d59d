"""Steps that several algorithms take: count, mean and radius, passes over batches, public bounds."""
