"""`eigenveil-site serve`: work that comes, decided about, answered, sent. Imports `state`, and no command."""
