"""Tables of what brokers answer; real ones confirm them in `tests/broker/java`."""
