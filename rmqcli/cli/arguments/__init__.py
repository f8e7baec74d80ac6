"""Arguments of the command line: what a command declares, and what was typed.

Ordinary arguments are parsed with a table that is made of the declarations, without
Typer, which is slow to load. Help, and arguments that may be wrong, take the long way.
"""
