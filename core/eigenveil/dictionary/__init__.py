"""Public data dictionary, study files that use it, and sites' statements and rules. Imports study."""
