"""Tests of rmqcli.broker.requests."""
