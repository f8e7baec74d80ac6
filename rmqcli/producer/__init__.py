"""Sending messages: queue choice, batches, lanes and retries."""
