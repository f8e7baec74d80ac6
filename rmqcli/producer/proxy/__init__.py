"""Send through a proxy, over gRPC, for `Producer` and for `rmq send`.

`publisher` makes the calls, as tasks. `backend` is the back end of a `Producer`, and
`send` is the `SendNetwork` of a `Sender`.
"""
