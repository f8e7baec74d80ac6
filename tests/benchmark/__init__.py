"""Tests of rmqcli.benchmark."""
