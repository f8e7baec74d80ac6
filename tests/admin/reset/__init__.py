"""Tests of rmqcli.admin.reset."""
