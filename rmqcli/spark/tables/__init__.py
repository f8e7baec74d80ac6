"""`rmq export --format delta|iceberg`: a range of a topic as one commit of a table.

    export    the whole export: pins the range, writes it, checks the commit
    record    the record in a commit: which offsets the export has read
    formats   the Spark packages and settings that each format needs; names of tables
    table     the interface of a table, for every format
    session   the Spark session that writes a table
    delta     a table of Delta Lake
    iceberg   a table of Apache Iceberg
    failure   converts exceptions of Spark and the formats to errors of rmqcli

The log of the table itself proves what was written: a commit contains all rows of its
run and the record of what was read, or it does not exist.
"""
