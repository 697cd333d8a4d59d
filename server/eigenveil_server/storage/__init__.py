"""Tables of the coordinator: one writer, one reader, and every statement about studies and the ledger."""
