"""`SimpleConsumer`, which receives messages by POP when the program requests them.

`consumer` has the public class. `receiver` decides which requests are sent, and
`remoting` or `proxy` (gRPC) sends them. `received` has the class of a received message,
with the time for which it is hidden.
"""
