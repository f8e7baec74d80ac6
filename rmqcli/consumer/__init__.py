"""A member of a consumer group: the engine, its threads and its network put together.

`consumer` is the public face, `iteration` the hand-over of messages to a `for` loop.
"""
