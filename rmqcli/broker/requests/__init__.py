"""The handlers of a broker's requests: one file for each request or family."""
