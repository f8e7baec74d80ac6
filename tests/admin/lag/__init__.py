"""Tests of rmqcli.admin.lag."""
