"""Tests of rmqcli.copy."""
