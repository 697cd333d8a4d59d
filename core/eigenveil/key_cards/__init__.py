"""Key cards: a name and public keys with their own signature, and the fingerprints that people compare."""
