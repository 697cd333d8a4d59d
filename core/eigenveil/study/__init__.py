"""Study: its columns, grid, budget and TOML. Imports numerics and accounting."""
