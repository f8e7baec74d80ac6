"""Benchmarks of consumers: `python -m tests.bench.consume[.<name>]`.

__main__       messages per second, compared with Java's DefaultMQPushConsumer
queues         a thousand queues compared with a few, and queues without messages
latency        from the send to the listener
memory         a backlog with a limit on memory
engine_thread  the plain and the leasing engine thread compared
members        starts one consumer as a process, for all of these
ours           the program of that process
"""
