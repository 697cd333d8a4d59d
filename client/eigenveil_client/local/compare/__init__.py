"""`eigenveil compare`: one study by each algorithm, simulated here or asked of a federation."""
