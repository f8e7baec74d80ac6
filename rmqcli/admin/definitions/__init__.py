"""Definitions: the topics and groups of a cluster as one file, compared and applied.

`model` has the file, `read` what a cluster has, `compare` the differences (pure), and
`apply` the changes that end them.
"""
