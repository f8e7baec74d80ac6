"""Helpers of the tests, above all real RocketMQ: jars, clusters and Java clients.

`artefacts` fetches and compiles, `cluster` runs a name server and brokers, and
`java_program` runs Java producers and consumers. These do not use `rmqcli`, so that a
mistake in the package cannot hide itself. All traffic stays on 127.0.0.1.
"""
