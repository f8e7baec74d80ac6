"""Reading ranges of queues in bulk, and what a message looks like as a record."""
