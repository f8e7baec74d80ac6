"""`rmq export`: plan, parts, files, manifest and resumption."""
