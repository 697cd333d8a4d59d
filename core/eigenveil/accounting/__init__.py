"""What privacy costs: prices, their composition, neighbours, and the ledger that is charged."""
