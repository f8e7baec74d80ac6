"""Messages of many queues in one order, as they come."""
