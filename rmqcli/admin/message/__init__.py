"""Single messages: finding them, and what became of each in its groups."""
