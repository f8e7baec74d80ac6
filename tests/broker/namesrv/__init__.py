"""Tests of rmqcli.broker.namesrv."""
