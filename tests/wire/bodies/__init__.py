"""Tests of rmqcli.wire.bodies."""
