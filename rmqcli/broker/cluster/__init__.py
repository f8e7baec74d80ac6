"""A cluster in this process: brokers, stores, replication, offline folders."""
