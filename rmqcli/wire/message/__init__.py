"""The stored record: its layout, reading and writing it, and its JSON."""
