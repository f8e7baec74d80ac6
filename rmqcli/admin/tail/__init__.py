"""The messages of many queues in one order: the last ones, a range, and new ones."""
