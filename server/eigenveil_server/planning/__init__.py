"""Planning of studies in isolated processes. Imports storage and keys; nothing that drives a study."""
