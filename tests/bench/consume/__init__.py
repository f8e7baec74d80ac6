"""How consumers fare: each file is a command, and prints ratios.

__main__       the rate beside Java's DefaultMQPushConsumer
queues         a thousand queues beside a few, and queues without messages
latency        from the send to the listener
memory         a backlog under a cap of memory
engine_thread  the two engine threads beside each other
members        starts one consumer as a process, for all of them
ours           the program of that process
"""
