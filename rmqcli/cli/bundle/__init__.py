"""`rmq bundle`: one archive for a support case."""
