"""The messages of apache.rocketmq.v2, generated from the .proto files beside this one.

The .proto files are those of the tag v2.1.2 of apache/rocketmq-apis.
`tests/wire/generate_protobuf.py` says how the code is made, and why it has a descriptor
pool of its own.
"""
