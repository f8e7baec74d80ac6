"""`df.write.format("rocketmq")` and `df.writeStream.format("rocketmq")`.

    options  checks the options, and the columns of the DataFrame
    write    the writers, which send rows as batches of messages in a worker

Delivery is at least once: when Spark runs a failed task again, or a micro-batch whose
completion it had not recorded, the rows are sent again. A pickled writer contains
neither a connection nor a secret: each process reads the credentials itself.
"""
