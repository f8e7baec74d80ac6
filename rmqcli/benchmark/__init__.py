"""Measures how fast a cluster stores and delivers messages, and how fast rmq is."""
