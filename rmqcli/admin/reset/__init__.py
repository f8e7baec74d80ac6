"""Changing a group's offsets: plan, apply, verify, undo."""
