"""The gRPC protocol of RocketMQ 5 (apache.rocketmq.v2). Nothing is implemented yet."""
