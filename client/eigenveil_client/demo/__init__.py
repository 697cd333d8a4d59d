"""`eigenveil demo`: a whole federation on one machine. Imported by the commands only."""
