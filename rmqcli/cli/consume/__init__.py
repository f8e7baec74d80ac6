"""`rmq consume`."""
