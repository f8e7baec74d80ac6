"""Definitions: topics, groups, users and rules as one file, compared and applied.

`model` has the file, `settings` what an entry can have in it, `read` what a cluster
has, and `compare` the differences (pure). `plan` has the changes that end them, and
`apply` makes these changes; `accounts` does both for users and rules.
"""
