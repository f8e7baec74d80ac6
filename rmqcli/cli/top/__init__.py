"""`rmq top`: a full screen of a cluster that refreshes itself."""
