"""Remoting, RocketMQ's own protocol, over sockets: connections, TLS, replies.

`RemotingClient` sends requests to any number of peers, driven by the thread that waits
for the answers; a `Reply` ends with each one. What the answers mean is the business of
the layers above. (gRPC has its own package, `proxy`; `topic_list` is a request over a
bare socket for shell completion.)
"""
