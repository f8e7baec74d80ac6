"""An operator's questions and changes: what a command asks for, without its printing.

Modules decide in pure code and act through `api`; `position_search` beside `positions`
is the pattern. Nothing here prints, asks a person or ends the process.
"""
