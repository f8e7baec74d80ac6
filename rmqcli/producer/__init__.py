"""Sending messages: `Producer` for programs, and `Sender` for the bulk of `rmq send`.

`producer` is the public face, `publish` what it does on the network, as tasks that
`api.task_thread` runs. `send` sends many messages of one topic, batched and pipelined,
in the caller's thread: `lane` cuts what waits into requests, `remoting` or `proxy.send`
hands them to `publish` or `proxy.publisher`. `proxy` has what speaks gRPC. `batches`
sends full requests with a `Producer` and waits for brokers, for a sink. `message`,
`target` and `config` are shared.
"""
