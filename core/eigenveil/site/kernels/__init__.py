"""Products and clipping of a chunk of records, in numpy or compiled C, with the same integer results."""
