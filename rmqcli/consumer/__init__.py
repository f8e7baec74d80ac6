"""Members of consumer groups: `Consumer` and `SimpleConsumer`.

`consumer` has the push consumer's public class, which connects the engine, its threads
and its network, or uses `proxy_member` (gRPC) instead. `iteration` hands messages to a
`for` loop. `simple` is the consumer that requests messages by POP.
"""
