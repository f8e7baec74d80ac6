"""The name server, without I/O."""
