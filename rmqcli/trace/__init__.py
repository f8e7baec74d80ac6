"""RocketMQ's message traces: what clients report about messages, and its text form."""
