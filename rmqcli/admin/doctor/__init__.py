"""`rmq doctor`: what is wrong with a cluster, check by check, with evidence."""
