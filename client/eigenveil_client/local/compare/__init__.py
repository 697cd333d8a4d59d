"""`eigenveil compare`: which algorithms are run, where, and how they did side by side."""
