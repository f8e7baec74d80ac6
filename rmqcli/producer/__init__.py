"""Send messages: `Producer` for programs, and the pipelined `Sender` of `rmq send`.

`producer` has the public class. `publish` has its network operations as tasks, which
`api.task_thread` runs. `send` sends many messages of one topic in the caller's thread,
batched and pipelined: `lane` cuts waiting messages into requests, and `remoting` or
`proxy.send` passes the requests to `publish` or `proxy.publisher`. `proxy` sends over
gRPC. `batches`, which Spark's sink and imports use, sends full batches with a
`Producer` and retries until brokers accept them. `message`, `target` and `config` are
shared.
"""
