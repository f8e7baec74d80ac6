"""The embedded cluster: a name server and brokers, for development and tests.

*state + request (+ now) -> answers and pushes.* `core.Broker` and
`namesrv.core.NameServer` have no socket, thread or clock: their caller passes the time,
so a whole cluster runs in one thread under a virtual clock. Only `server` has sockets.
Each request, or family of requests, has a file whose docstring lists what of RocketMQ
is imitated and what is not. Nothing of engine, api or admin is imported, because this
package is used to test them.

Each line imports only what is above it, and no modules import each other:

    effects faults profiles topic_names     values
    fault_file request settings             faults as JSON, requests, settings
    context                                 what all parts of one broker share
    filter                                  SQL92 and tags
    message                                 messages into the store and out of it
    state                                   tables and services, and all of one broker
    dispatch table_json                     request code -> handler; tables as JSON
    requests                                the handlers
    core handlers                           one broker; every handler
    namesrv                                 one name server, built the same way
    server                                  sockets for brokers and name servers
    cluster                                 a cluster in this process
"""
