"""`rmq import`: send the messages of an export back into a topic. Needs no Spark.

    plan   finds the files of each exported queue, and the queue that receives them
    state  records on disk what was sent, after each batch
    rows   reads the messages of a queue's files, in order
    run    sends the messages, and records each batch that is stored

A single process reads the Parquet files and sends. It decodes more messages per second
than brokers accept, and keeping the order of a queue allows one request at a time.
Starting Spark would take longer than most imports.
"""
