"""gRPC services behind the gateway: one interceptor admits or refuses each call, handlers translate messages
to values. May import every package but `admin`."""
