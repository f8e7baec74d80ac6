"""`rmq export --format delta|iceberg`: a range of a topic as one commit of a table.

    export    the whole: pin the range, write it, check the commit
    record    what a commit says of the rows that it brought, and what that means
    formats   what each format needs of Spark: packages and settings; targets
    table     what an export needs of a table
    session   the Spark session that a table is written with
    delta     a table of Delta Lake
    iceberg   a table of Apache Iceberg
    failure   what Spark and the formats say, as our errors

The table's own log is the proof of what was written: a commit has all rows of its run
and the record of what was read, or it does not exist.
"""
