"""Key cards: a name and public keys under their own signature, and the digits that people compare."""
