"""Tests of rmqcli.cli.spark."""
