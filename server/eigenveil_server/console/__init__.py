"""Web console of the coordinator, on the daemon's event loop; access is denied by default."""
