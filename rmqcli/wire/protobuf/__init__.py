"""The messages of apache.rocketmq.v2, generated from the .proto files beside this one.

They are those of the tag v2.1.2 of apache/rocketmq-apis; `reflection.proto` is gRPC's
service by which programs ask what a server serves.
`tests/wire/generate_protobuf.py` says how the code is made, and why it has a descriptor
pool of its own.
"""
