"""`rmq cluster`, `rmq doctor` and `rmq check`: is a cluster well?"""
