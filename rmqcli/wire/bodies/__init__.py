"""The JSON bodies of requests and answers, by area: declarations for `wire.body`."""
