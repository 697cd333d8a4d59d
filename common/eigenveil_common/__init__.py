"""Infrastructure of every eigenveil process that the pure core may not have: disk, configuration, gRPC."""
