"""Sockets for brokers and name servers."""
