"""Administration of a cluster: lag, resets, tail, topics, groups and brokers.

Programs use `Admin` in `admin`; each command uses the functions of its own subject.
Modules decide in pure code and act through `api`. Nothing here prints, prompts the user
or ends the process.
"""
