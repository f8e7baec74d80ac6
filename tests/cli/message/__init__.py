"""Tests of rmqcli.cli.message."""
