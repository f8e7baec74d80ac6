"""Proxies for tests: a real one and one with scripted answers, and a raw client."""
