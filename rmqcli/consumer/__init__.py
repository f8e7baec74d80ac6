"""Members of consumer groups: `Consumer` and `SimpleConsumer`.

`consumer` is the push consumer's public face: the engine, its threads and its network
put together, or `proxy_member` (gRPC) in their place; `iteration` hands messages to a
`for` loop. `simple` is the consumer that receives by POP when it is asked to.
"""
