"""Tests of rmqcli.redrive."""
