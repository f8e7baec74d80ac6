"""Sockets for the remoting protocol. The only package with I/O on the remoting side."""
