"""Send messages: `Producer` for programs, and the pipelined `Sender` of `rmq send`.

`producer` has the public class, which delegates to a `backend`: `remoting` sends to
brokers, `proxy` over gRPC to a proxy. `transactions` has what both need for them.
`send` sends many messages of one topic in the caller's thread, batched and pipelined:
`lane` cuts waiting messages into requests, and `remoting.send` or `proxy.send` passes
them on. `batches`, which Spark's sink and imports use, sends full batches with a
`Producer` and retries until brokers accept them. `message` and `config` are shared.
"""
