"""A broker's tables and services: what it remembers, and what it does on its own."""
