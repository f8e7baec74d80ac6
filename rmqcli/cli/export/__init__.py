"""`rmq export` and `rmq export-compact`."""
