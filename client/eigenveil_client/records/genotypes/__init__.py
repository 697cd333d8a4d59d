"""Genotypes as geneticists keep them: matrices of alleles counted, and the lists beside them."""
