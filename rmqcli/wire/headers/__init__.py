"""The headers of requests and answers, by area."""
