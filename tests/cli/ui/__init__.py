"""Tests of rmqcli.cli.ui."""
