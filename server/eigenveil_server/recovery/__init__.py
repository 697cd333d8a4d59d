"""After a restore or a loss: backups, signed checkpoints of the ledger, one process a folder. Imports storage
and the keys; knows of no running study."""
