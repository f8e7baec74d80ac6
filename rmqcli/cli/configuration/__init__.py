"""The user's profiles: which clusters there are, and which one a command uses."""
