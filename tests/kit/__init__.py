"""Real RocketMQ for the tests: jars, clusters and Java clients of one version.

`artefacts` fetches and compiles, `cluster` runs name server and brokers,
`java_program` runs Java producers and consumers. Nothing here uses `rmqcli`, so that
a mistake in the package cannot hide itself; traffic stays on 127.0.0.1.
"""
