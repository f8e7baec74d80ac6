"""`df.write.format("rocketmq")` and `df.writeStream.format("rocketmq")`.

    options  the options, and the columns that a DataFrame may have
    write    the writers: rows to batches of messages, in a worker

At least once: Spark runs a task again that failed, or a micro-batch whose end it has
not noted, and its rows are sent again. A writer holds no connection and no secret when
it is pickled: each process reads the credentials itself.
"""
