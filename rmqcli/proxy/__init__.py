"""gRPC for apache.rocketmq.v2. Its room; nothing lives here yet."""
