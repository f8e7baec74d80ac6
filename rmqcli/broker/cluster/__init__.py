"""A cluster in this process: brokers, their stores, faults, and a view of a folder."""
