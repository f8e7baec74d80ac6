"""Messages on their way into the store and out of it."""
