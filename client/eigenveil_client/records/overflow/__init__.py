"""What does not fit into memory: nameless files, a study's rows in one, rows of persons in others."""
