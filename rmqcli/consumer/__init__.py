"""A consumer as a library: the engine, its threads and its network put together."""
