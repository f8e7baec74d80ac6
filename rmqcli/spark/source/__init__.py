"""`spark.read.format("rocketmq")` and `spark.readStream.format("rocketmq")`.

    data_source  the class that Spark uses: schema, batch reader, stream reader, writers
    options      parses and checks the options, and has their defaults
    subscription which queues are read: named topics, a pattern, or single queues
    pinned       resolves positions once, in the driver; cuts ranges into partitions
    filters      conditions of WHERE on queues, offsets, times and tags, in `rmq sql`
    read         reads one partition, in a worker, as Arrow batches
    stream       the offsets of each micro-batch
    progress     offsets as JSON for checkpoints; the limit of a batch; what is behind

Spark creates, pickles and calls these objects in its own processes. So a pickled object
contains neither a connection nor a secret: each process reads the credentials itself.
"""
