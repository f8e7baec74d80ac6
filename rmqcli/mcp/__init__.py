"""A server of the Model Context Protocol: tools with which assistants read a cluster.

`server` speaks the protocol and bounds each call; `tools` has the tools, `results` the
types of what they return, and `redact` what must not leave. Nothing here changes a
cluster. Needs the extra `mcp`.
"""
