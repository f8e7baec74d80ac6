"""Sending by way of a proxy, over gRPC: the half of `Producer`, and of `rmq send`.

`publisher` makes the calls, as tasks; `producer` is what `Producer` does with
endpoints, `send` the network of a `Sender`.
"""
