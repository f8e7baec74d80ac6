"""Consumer lag: how far each group is behind its queues, and why."""
