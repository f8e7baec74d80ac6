"""Sockets for brokers and name servers that do no I/O themselves."""
