"""The decisions of one member of a consumer group. Pure: no I/O, threads or clock.

`push_consumer` starts and closes the member. `rebalance` and `allocate` decide which
queues it owns, and `pull_message` when to pull. `process_queue` caches the messages of
a queue. The services in `consume` decide which messages are handed to listeners, and
`offset_store` which offsets are committed. `interfaces` defines what the engine needs
from outside: a network, and threads that call listeners. `rmqcli.consumer` provides
both.
"""
