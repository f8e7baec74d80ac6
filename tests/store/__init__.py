"""Tests of the store: folders that real brokers made, and ones that they must read."""
