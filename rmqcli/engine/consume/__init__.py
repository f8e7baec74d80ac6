"""Consuming cached messages: which ones a listener gets, and what its result means.

`concurrently` and `orderly` are the services: they make requests of the messages that a
pull brought, and act on the outcomes. `request` calls the listener with the batches of
a request, in any thread. `send_back` stores failed messages in the retry topic.
"""
