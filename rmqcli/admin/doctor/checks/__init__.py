"""The checks by subject. Each is a pure function of the facts."""
