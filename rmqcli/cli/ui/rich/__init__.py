"""What is drawn with rich, on terminals only. Imported when a terminal is there."""
