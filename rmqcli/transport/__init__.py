"""Remoting, RocketMQ's own protocol, over sockets: connections, TLS, replies.

`RemotingClient` sends requests to any number of peers, driven by the thread that waits
for the answers; each request has a `PendingReply`, which ends with the answer. The
layers above interpret the answers. (gRPC has its own package, `proxy`; `topic_list` is
a request over a plain socket for shell completion.)
"""
