"""Reading ranges of queues in bulk: what to pull next, from where, and how much."""
