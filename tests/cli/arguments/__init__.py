"""Tests of the reader of ordinary arguments."""
