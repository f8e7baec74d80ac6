"""Commands that change servers: settings, the key-value store, drains, clean-ups."""
