"""Commands that need no federation: plan, simulate, compare. Imports `analyst` and `records`."""
