"""Completion of commands, options and names in shells."""
