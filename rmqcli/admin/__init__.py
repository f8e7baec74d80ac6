"""An operator's questions and changes: lag, resets, tail, topics, groups and brokers.

`Admin` in `admin` is what programs use; each command uses the functions of its subject.
Modules decide in pure code and act through `api`. Nothing here prints, asks a person or
ends the process.
"""
