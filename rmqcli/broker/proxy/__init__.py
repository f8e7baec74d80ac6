"""The embedded proxy: serves apache.rocketmq.v2 (gRPC) in front of the cores."""

import rmqcli.process.grpc  # noqa: F401  # before gRPC is loaded
