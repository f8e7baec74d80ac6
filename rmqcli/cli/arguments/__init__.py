"""Ordinary arguments, read without Typer, by what Typer's definitions say."""
