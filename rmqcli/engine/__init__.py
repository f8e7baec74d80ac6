"""The decisions of one member of a consumer group. Pure: no I/O, threads or clock.

`push_consumer` starts and closes the member. `rebalance` and `allocate` decide which
queues it owns, `pull_message` when to pull, `process_queue` what is cached of a queue,
`consume_concurrently` and `consume_orderly` what is handed to listeners, `offset_store`
what is committed. `interfaces` says what the engine needs of the world around it: a
network, and threads that call listeners. `consumer` provides both.
"""
