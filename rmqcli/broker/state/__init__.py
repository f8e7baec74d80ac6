"""The tables of one broker, and the services that it runs without a request."""
