"""Tests of rmqcli.api."""
