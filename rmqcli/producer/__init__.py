"""Send messages: `Producer` for programs, and the pipelined `Sender` of `rmq send`.

`producer` has the public class, which delegates to a `backend`: `remoting` sends to
brokers, `proxy` over gRPC to a proxy. `transactions` has what both need for them.
`accumulator` gathers messages into requests, which `lane` cuts. `submit` puts messages
there, and so does `send`, which sends many of one topic and keeps their outcomes in
order; `remoting.send` and `proxy.send` are its networks. `batches`, which Spark's sink
and imports use, sends full batches with a `Producer` and retries until brokers accept
them. `patience` says for all of them what is sent again. `message` and `config` are
shared.
"""
