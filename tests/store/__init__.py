"""Tests of the store, on folders of real brokers and on its own."""
