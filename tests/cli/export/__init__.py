"""Tests of rmqcli.cli.export."""
