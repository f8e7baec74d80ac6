"""Tests of `rmqcli.bundle`."""
