"""Tests of rmqcli.cli.consume."""
