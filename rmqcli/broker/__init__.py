"""The embedded cluster: a name server and brokers, for development and tests.

*state + request (+ now) -> answers and pushes.* `core.Broker` and `namesrv.NameServer`
have no socket, thread or clock: whoever calls them says what time it is, so a whole
cluster runs in one thread under a virtual clock. Only `server` has sockets. One small
file answers each request, or family of requests, and opens with what of RocketMQ is and
is not imitated. Nothing of engine, api or admin is imported: this tests them.
"""
