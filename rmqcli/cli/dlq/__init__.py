"""`rmq dlq`: the commands about dead letters."""
