"""Tables of the coordinator: one writer, one reader, every statement about studies and the ledger. Imports no
other folder of the coordinator."""
