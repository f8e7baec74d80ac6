"""The requests of POP: receiving, acknowledging, and a group's request mode."""
