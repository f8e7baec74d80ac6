"""RocketMQ's files: commit log, consume queues, index, config. Read and written.

`message_store` says what a broker needs of a store; `memory` keeps it in memory, the
others on disk in RocketMQ's own format. One thread at a time uses a store.
"""
