"""Members of consumer groups: `Consumer` and `SimpleConsumer`.

`consumer` has the push consumer's public class. It checks arguments and delegates to a
back end (`backend`): `remoting_backend` connects the engine, its threads and its
network; `proxy_backend` speaks gRPC to a proxy. `iteration` hands messages to a `for`
loop. `simple` is the consumer that requests messages by POP.
"""
