"""What is done with every value of a chunk: in numpy, and in C where it was built, to the same integers."""
