"""`rmq reset-offset`."""
