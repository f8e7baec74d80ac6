"""Tests of rmqcli.wire.message."""
