"""`eigenveil-site serve`: receive, decide, answer and send. Imports `state`, but no command."""
