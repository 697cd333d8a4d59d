"""Shared parts of the web consoles of a site and of the coordinator, rendered at the server. Pages load
nothing from other hosts, have no inline code, and work without their one script."""
