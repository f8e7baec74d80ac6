"""Tests of rmqcli.admin.dlq."""
