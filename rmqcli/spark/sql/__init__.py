"""`rmq sql`: queries of Spark over topics.

statement  the topics that a statement reads, by Spark's own parser
views      topics as views: ranges that are pinned before Spark reads them
session    a local session, and the rows of a query
values     what Spark returns, as values of JSON
failure    what Spark says of a statement or a query, as our errors
"""
