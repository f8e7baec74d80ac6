"""RocketMQ's files: commit log, consume queues, index, config. Read and written.

`message_store` has the interface that a broker needs of a store; `memory` keeps it in
memory, the other modules on disk in RocketMQ's own format. One thread at a time uses a
store.
"""
