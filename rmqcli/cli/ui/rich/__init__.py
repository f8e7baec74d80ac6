"""Drawing with rich, on terminals only. Imported only if there is a terminal."""
