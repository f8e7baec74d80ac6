"""Tests of rmqcli.producer."""
