"""Reads and writes RocketMQ's files: commit log, consume queues, index and config.

`message_store` has the interface of a store for a broker; `memory` implements it in
memory, the other modules on disk, in RocketMQ's own format. Only one thread at a time
may use a store.
"""
