"""RocketMQ's files on disk. Its room; nothing lives here yet."""
