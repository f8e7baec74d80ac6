"""Sending messages: `Producer` for programs, and `Sender` for the bulk of `rmq send`.

`producer` is the public face, `publish` what it does on the network, as tasks that
`api.task_thread` runs. `send`, `lane` and `target` send many messages of one topic,
batched and pipelined, in the caller's thread. `batches` sends full requests with a
`Producer` and waits for brokers, for a sink. `message` and `config` are shared.
"""
