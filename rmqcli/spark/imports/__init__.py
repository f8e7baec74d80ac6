"""`rmq import`: the folder of an export back into a topic. Needs no Spark.

    plan   what is sent: the manifest's files by queue, and where each queue goes
    state  what was sent, on the disk after each batch
    rows   the messages of a queue's files, in order
    run    sends them, and notes each batch that is stored

One process reads Parquet and sends: brokers take fewer messages a second than one
process decodes, and a queue's order allows one request at a time. Starting Spark would
take longer than most imports.
"""
