"""Tests of rmqcli.cli.dlq."""
