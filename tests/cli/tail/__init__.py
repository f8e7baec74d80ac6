"""Tests of rmqcli.cli.tail."""
