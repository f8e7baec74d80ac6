"""Tables of what brokers answer; `tests/broker/java` checks them on real brokers."""
