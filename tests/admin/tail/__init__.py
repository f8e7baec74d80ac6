"""Tests of rmqcli.admin.tail."""
