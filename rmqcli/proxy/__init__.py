"""The client side of apache.rocketmq.v2, RocketMQ 5's gRPC protocol.

`session.Session` is one client of a proxy: channels, settings, telemetry, heartbeats
and routes. `rpc` has a function for each call, whose value `Session.invoke` carries out
in the caller's thread and `Session.submit` in the I/O thread. `message` turns messages
into protobuf and back. What the consumers and the producer build on is listed in the
docstring of `session`.
"""

import os

# Read when gRPC is loaded. Without it gRPC's C code prints each failed handshake to
# stderr, beside the error that says the same.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
