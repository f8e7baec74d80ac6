"""The stored record: its layout, decoding it, encoding it, and its properties."""
