"""Who the other sites are to this one, by the word of its people and of nobody else."""
