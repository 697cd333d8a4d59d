"""The coordinator's pages for operators and analysts: behind certificates or a proxy that knows its people,
deny by default, on the daemon's event loop, and never in the way of a round."""
