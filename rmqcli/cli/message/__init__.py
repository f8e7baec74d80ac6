"""`rmq message`: single messages."""
