"""Tests of rmqcli.spark.export."""
