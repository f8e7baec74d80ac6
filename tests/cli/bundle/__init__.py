"""Tests of `rmq bundle`."""
