"""Tests of rmqcli; the folders mirror the package."""
