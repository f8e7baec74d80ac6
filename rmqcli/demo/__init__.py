"""A cluster with traffic, and a tour of the commands on it."""
