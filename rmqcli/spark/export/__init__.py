"""`rmq export`: a fixed range of a topic as Parquet files, written by Spark's workers.

    export        the whole: plan, run, verify, commit, and what to resume
    cluster       resolves positions to offsets; pulls records in the workers
    plan          what will be read, written down before anything is read
    job           the Spark job: start, watch, cancel
    connect_job   the same through Spark Connect
    executors     what the executors of a cluster must have, and waiting for them
    part          one part, in a worker: pull, decode, filter, write
    part_files    the files of a part and their final names
    parquet_file  one Parquet file and its footer
    layout        the paths inside the user's directory
    directory     the state of that directory: whose files, which run
    manifest      what was written; the proof of completeness
    compact       many small files and runs become few
    summary       what the command prints at the end
    target        which storage a URL names
    storage       what an export needs of the place that it is written to
    disk          a folder: the file-system calls, and the lock
    remote        an object store or HDFS, through pyarrow
    lease         one export at a time where no file can be locked

Workers write the files themselves; Spark schedules, retries and distributes the parts.
Threads of the driver: the main thread, and one that waits for the Spark job
(`job.run_parts`), which is joined before `Export.run` returns; with a remote storage
also one that renews the lease, and a few that call the storage. Workers are processes.
"""
