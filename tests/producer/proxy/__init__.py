"""Tests of rmqcli.producer.proxy."""
