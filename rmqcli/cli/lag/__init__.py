"""`rmq lag`."""
