"""`spark.read.format("rocketmq")` and `spark.readStream.format("rocketmq")`.

    data_source  what Spark is given: schema, batch reader, stream reader
    options      the options, their defaults, and what is wrong with one
    pinned       positions as offsets, once in the driver; ranges cut into partitions
    filters      what WHERE says about queues, offsets, times and tags
    read         one partition, in a worker: Arrow batches
    stream       the offsets of each micro-batch
    progress     offsets as JSON for checkpoints; how many a batch may take

Spark makes, pickles and calls these objects in processes of its own. So they hold no
connection and no secret when they are pickled: each process reads the credentials
itself.
"""
