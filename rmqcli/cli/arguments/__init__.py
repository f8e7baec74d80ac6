"""Parses ordinary arguments without Typer, with a table made of its definitions."""
