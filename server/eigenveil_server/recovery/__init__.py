"""Recovery after a restore or a loss: backups, signed ledger checkpoints, one process a folder. Imports
storage and keys; no access to running studies."""
