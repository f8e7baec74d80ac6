"""Sending dead letters again: the plan and the run."""
