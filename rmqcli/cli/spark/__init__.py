"""The commands that need the extra `spark`: `rmq sql`, `rmq import`, `rmq spark`.

`rmq export` has a folder of its own.
"""
