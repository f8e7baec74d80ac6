"""The embedded proxy: serves apache.rocketmq.v2 (gRPC) in front of the cores."""
