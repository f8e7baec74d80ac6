"""Copies messages between topics and clusters: resumable, in order, with a log."""
