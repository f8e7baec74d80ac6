"""The embedded cluster: a name server and brokers, for development and tests.

*state + request (+ now) -> answers and pushes.* `core.Broker` and
`namesrv.core.NameServer` have no socket, thread or clock: their caller passes the time,
so a whole cluster runs in one thread under a virtual clock. Only `server` has sockets.
One file answers each request, or family of requests, and opens with what of RocketMQ
is and is not imitated. Nothing of engine, api or admin is imported: this tests them.

Each of these imports only what is before it, and no two files import each other:

    settings profiles effects request faults  values, and one request's answers
    context                                   what all parts of one broker share
    filter message state                      messages, tables and services
    table_json dispatch                       JSON of tables; request code -> handler
    requests, handlers                        the handlers, and all of them
    core                                      one broker
    namesrv                                   one name server, built the same way
    server                                    sockets for brokers and name servers
    cluster                                   a cluster in this process
"""
