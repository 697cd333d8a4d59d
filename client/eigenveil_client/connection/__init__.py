"""The way to a coordinator: identity, TLS, proxy, calls. Imports no other room of the client."""
