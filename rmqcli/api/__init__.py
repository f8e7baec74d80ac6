"""One typed call per request code, and the client that sends calls.

A call is a value (`api.call.Call`): the functions of `api.calls` create calls and are
pure, and `Client` sends them. `runner` runs tasks over a client in the caller's thread:
conversations with many brokers at the same time, until one deadline. `task_thread` runs
tasks in a separate thread. `routes` keeps the routes of topics.
"""
