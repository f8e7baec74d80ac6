"""The embedded proxy: apache.rocketmq.v2 over gRPC in front of the cluster's cores."""
