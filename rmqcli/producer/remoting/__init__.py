"""Send to brokers, over the remoting protocol, for `Producer` and for `rmq send`.

`publisher` makes the requests, as tasks, to the queues that `target` finds. `backend`
is the back end of a `Producer`, and `send` is the `SendNetwork` of a `Sender`.
"""
