"""`rmq export`, topics as DataFrames of Apache Spark, and the ways back into topics.

    export        the export itself: plan, parts, files, manifest, resumption
    source        `spark.read` and `spark.readStream` with format("rocketmq")
    sink          `df.write` and `df.writeStream` with format("rocketmq")
    imports       `rmq import`: an export's files back into a topic, without Spark
    rows          the rows of a range, as Arrow batches
    messages      rows as messages to send
    counts        accounts for every offset of a range
    extent        the range to read from each queue, clipped to what the queue holds
    session       starts and stops Spark quietly, on this machine or on a cluster
    package       rmqcli as a zip that executors can import
    connect       sessions with a Spark Connect server, which has no SparkContext
    java          finds the Java runtime that Spark needs
    options       options that source and sink share, and errors that name the option
    shown_errors  adds hints to errors that Spark shows, and recreates errors
    master        checks the URL of a Spark master before Java is started
    failure       finds the reason of a failure of Spark
    encryption    refuses to send keys over connections that Spark does not encrypt
    scratch       the temporary folder of a session, removed even after a crash
    daemon        the process from which Spark forks its Python workers

The first four build on the others. `session`, `connect`, `export.job`,
`export.connect_job`, `daemon`, `source` and `sink` use pyspark; pyarrow is imported
only where rows are made, written or read.
"""
