"""What runs on Apache Spark: `rmq export`, which writes a topic to Parquet files.

    export      the export itself: plan, parts, files, manifest, resumption
    rows        the rows of a range, as Arrow batches
    counts      accounts for every offset of a range
    extent      what is read of each queue, clipped to what it holds
    session     starts and stops Spark quietly, on this machine or on a cluster
    java        finds the Java runtime that Spark needs
    encryption  refuses to send keys over connections that Spark does not encrypt
    scratch     the temporary folder of a session, removed even after a crash
    daemon      the process from which Spark forks its Python workers

All but the first know nothing of exports, so any other use of Spark can build on them.
`session`, `export.job` and `daemon` use pyspark; pyarrow is imported only where a file
is written or read.
"""
