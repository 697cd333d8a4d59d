"""The algorithms that `auto` chooses from, and `auto` itself."""
