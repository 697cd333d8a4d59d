"""Commands of a hospital's first day: `init` that looks at the records, and `map`."""
