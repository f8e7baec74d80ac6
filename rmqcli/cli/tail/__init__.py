"""`rmq tail`."""
