"""Tests of rmqcli.admin.definitions."""
