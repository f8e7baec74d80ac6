"""Engines and brokers under a virtual clock, with faults and checks."""
