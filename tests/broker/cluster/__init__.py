"""Tests of rmqcli.broker.cluster."""
