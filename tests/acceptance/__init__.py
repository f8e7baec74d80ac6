"""The whole command line as a user runs it: processes and real brokers."""
