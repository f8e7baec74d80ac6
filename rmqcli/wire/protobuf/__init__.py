"""The messages of apache.rocketmq.v2, generated from the .proto files beside this one.

They are those of the tag v2.1.2 of apache/rocketmq-apis; `reflection.proto` is gRPC's
reflection service, from which a client learns what a server offers.
`tests/wire/generate_protobuf.py` explains how the code is generated, and why it has its
own descriptor pool.
"""
