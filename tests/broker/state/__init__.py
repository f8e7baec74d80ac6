"""Tests of rmqcli.broker.state."""
