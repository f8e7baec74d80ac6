"""Sending dead letters again: the plan, the run, and the log of what was sent."""
