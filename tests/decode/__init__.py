"""Tests of what single bodies mean."""
