"""Tests of rmqcli.broker.requests.pop."""
