"""Tests of rmqcli.process."""
