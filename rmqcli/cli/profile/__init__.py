"""`rmq profile`: lists, shows and changes the user's profiles."""
