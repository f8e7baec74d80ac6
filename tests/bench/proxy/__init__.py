"""Benchmarks of clients of a proxy. `__main__` and `servers` are the commands.

__main__  our client compared with the official Python one, on the same real proxy
servers   the embedded proxy compared with a real one, with the official client
clients   runs one measurement in a process, and compares two sides
ours      the program of that process with our client
official  the same with the official client, in its own environment
pace      counters and timers that both programs use
"""
