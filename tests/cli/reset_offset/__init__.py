"""Tests of rmqcli.cli.reset_offset."""
