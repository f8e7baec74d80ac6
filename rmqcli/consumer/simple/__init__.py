"""`SimpleConsumer`, which receives messages by POP when it is asked to.

`consumer` is the public face; `receiver` decides what is asked, and `remoting` or
`proxy` (gRPC) asks. `received` is a message with the time for which it is hidden.
"""
