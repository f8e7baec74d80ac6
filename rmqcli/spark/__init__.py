"""`rmq export`: a pinned range of a topic as Parquet files, scheduled by Spark.

    plan      what will be read, decided once and written down before anything else
    layout    where each thing lies inside the user's directory, and what is not ours
    part      one part: pull, decode, write, rename; runs in a Spark worker
    manifest  what was written, per queue and file; the proof of completeness
    directory the state of the user's directory: whose files, which run, who is at work
    job       the Spark job: run it, watch it, cancel it
    export    the whole: plan, run, verify, commit

The workers write the files themselves; Spark schedules, retries and distributes. Only
`session` and `job` import pyspark; pyarrow is imported only where a file is written or
read.

Threads of an export process: the main thread, and one thread that waits for the Spark
job (`job.SparkRunner`), joined before `run` returns. Workers are processes.
"""
