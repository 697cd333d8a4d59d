"""What every eigenveil process needs and the pure core may not have: disk, configuration, gRPC, commands."""
