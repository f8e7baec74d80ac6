"""Tests of rmqcli.admin.read."""
