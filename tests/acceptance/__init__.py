"""The whole of it, run as a user would: processes against real brokers."""
