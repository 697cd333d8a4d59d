"""What is asked: a study, its columns, its grid, its price and its TOML. Imports numerics and accounting."""
