"""Tests of rmqcli.broker.filter."""
