"""Tests of rmqcli.cli.completion."""
