"""The descriptor pool of this package's copy of apache.rocketmq.v2.

It is separate from protobuf's default pool, which refuses a second definition of a
name: RocketMQ's official Python client registers the same names there.
"""

from google.protobuf import descriptor_pool, duration_pb2, timestamp_pb2

POOL = descriptor_pool.DescriptorPool()
for known in (duration_pb2, timestamp_pb2):
    POOL.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
