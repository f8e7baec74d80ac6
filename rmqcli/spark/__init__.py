"""What runs on Apache Spark: `rmq export`, and topics as DataFrames.

    export      the export itself: plan, parts, files, manifest, resumption
    source      `spark.read` and `spark.readStream` with format("rocketmq")
    rows        the rows of a range, as Arrow batches
    counts      accounts for every offset of a range
    extent      what is read of each queue, clipped to what it holds
    session     starts and stops Spark quietly, on this machine or on a cluster
    java        finds the Java runtime that Spark needs
    master      checks the URL of a Spark master before Java is started
    failure     what went wrong in Spark, in words
    encryption  refuses to send keys over connections that Spark does not encrypt
    scratch     the temporary folder of a session, removed even after a crash
    daemon      the process from which Spark forks its Python workers

The first two build on the others. `session`, `export.job`, `daemon` and `source` use
pyspark; pyarrow is imported only where rows are made, written or read.
"""
