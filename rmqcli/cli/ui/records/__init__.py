"""Messages as text: formats, columns and JSON."""
