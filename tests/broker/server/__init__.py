"""Tests of rmqcli.broker.server."""
