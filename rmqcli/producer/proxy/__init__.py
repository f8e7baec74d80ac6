"""Send through a proxy, over gRPC, for `Producer` and for `rmq send`.

`publisher` makes the calls, as tasks. `producer` is the part of `Producer` that needs
endpoints, and `send` is the `SendNetwork` of a `Sender`.
"""
