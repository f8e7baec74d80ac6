"""Bytes to values and back, pure: no socket, thread or clock below this package."""
