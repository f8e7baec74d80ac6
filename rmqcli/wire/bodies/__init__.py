"""The JSON bodies of requests and answers, by area."""
