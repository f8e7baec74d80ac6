"""The command line: parses arguments, calls a function of a lower layer, and prints.

`main` runs a command; it is the only module that turns an error into a message and an
exit code. `commands` is the table of all commands; a command's module is imported only
when that command runs, so `rmq --help` stays fast. `options` defines the options that
every command has. In `ui`, `output` writes data to stdout, `messages` writes messages
to stderr, `rich` draws on terminals, and `escape` makes text from peers and users safe
to print on a terminal.
"""
