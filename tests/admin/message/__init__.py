"""Tests of rmqcli.admin.message."""
