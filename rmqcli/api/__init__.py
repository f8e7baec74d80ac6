"""One typed call per request code, the client that carries calls out, the route cache.

A call is a value (`api.call.Call`): `calls_*.py` make them and are pure, `Client` sends
them. A caller that asks many peers submits all its calls first and gathers afterwards,
so that everything is in flight together under one deadline.
"""
