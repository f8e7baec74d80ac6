"""Tests of rmqcli.broker.message."""
