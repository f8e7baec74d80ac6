"""How clients of a proxy fare; `__main__` and `servers` are commands and print ratios.

__main__  our client beside the official Python one, on the same real proxy
servers   the embedded proxy beside a real one, with the official client
clients   runs one measurement in a process, and compares two sides
ours      the program of that process with our client
official  the same with the official one, in its own environment
pace      what both count and time
"""
