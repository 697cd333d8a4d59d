"""`eigenveil demo`: a whole federation on one machine. Imports what it likes; only the commands import it."""
