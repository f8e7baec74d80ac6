"""One typed call per request code, and the client that carries calls out.

A call is a value (`api.call.Call`): the functions of `api.calls` make them and are
pure, `Client` sends them. `runner` runs tasks over a client: conversations with many
brokers, side by side and under one deadline. `task_thread` runs them in a thread of
their own. `routes` keeps the routes of topics.
"""
