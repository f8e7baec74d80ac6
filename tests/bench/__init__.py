"""Benchmarks to run by hand: `python -m tests.bench.<name>`. No test imports them."""
