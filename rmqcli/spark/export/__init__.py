"""`rmq export`: a fixed range of a topic as Parquet files, written by Spark's workers.

    export        the whole export: decides what to do, plans, runs, verifies, commits
    cluster       resolves positions to offsets; pulls records in the workers
    plan          the ranges to read, which are on disk before anything is read
    job           the Spark job: start, watch, cancel
    connect_job   the Spark job with Spark Connect
    executors     waits for executors of a cluster, and checks that they can write parts
    part          one part, in a worker: pull, decode, filter, write
    part_files    the files of a part and their final names
    parquet_file  one Parquet file and its footer
    layout        the paths inside the user's directory
    directory     the state of that directory: its files, its runs, its lock
    manifest      the record of what was written, which proves that it is complete
    compact       merges many small files and runs
    target        parses the URL of a remote storage
    storage       the interface of the storage to which an export is written
    disk          a folder as a storage: the file-system calls, and the lock
    remote        an object store or HDFS, through pyarrow
    lease         allows one export at a time in a storage without file locks

Workers write the files themselves; Spark schedules, retries and distributes the parts.
Threads of the driver: the main thread, and one that waits for the Spark job
(`job.run_parts`), which is joined before `Export.run` returns; with a remote storage
also one that renews the lease, and a few that call the storage. Workers are processes.
"""
