"""What an analyst runs on one machine: plans, simulations and comparisons. Imports nothing of a site."""
