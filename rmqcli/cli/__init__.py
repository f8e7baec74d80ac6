"""The command line: parse, call one function of a layer below, print.

`main` runs it and is the one place where an error becomes text and an exit code.
`commands` is the table of what exists; a command's module is imported only when that
command runs, so `rmq --help` stays fast. `options` holds what every command takes.
In `ui`, `output` writes data to stdout, `messages` writes to people on stderr, `rich`
draws on terminals, and `escape` keeps everything that a peer or a user sent from
reaching a terminal as more than text.
"""
