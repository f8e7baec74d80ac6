"""Requests of POP: receive by lease, acknowledge, and which mode a group has."""
