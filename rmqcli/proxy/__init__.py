"""The client side of apache.rocketmq.v2, RocketMQ 5's gRPC protocol.

`session.Session` is one client of a proxy: channels, settings, telemetry, heartbeats
and routes. `rpc` has a function for each call, which returns a description of the call:
`Session.invoke` makes the call in the caller's thread, `Session.submit` in the I/O
thread. `message` converts messages to protobuf and back. The docstring of `session`
lists what the consumers and the producer use.
"""

import rmqcli.process.grpc  # noqa: F401  # before gRPC is loaded
