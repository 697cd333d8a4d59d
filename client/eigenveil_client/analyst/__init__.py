"""What an analyst runs: studies at a coordinator, releases on disk. Imports `connection`, and no site."""
