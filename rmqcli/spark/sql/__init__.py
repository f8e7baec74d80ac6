"""`rmq sql`: Spark SQL queries over topics.

guess      refuses what is certainly not one query, and finds topics, without Spark
statement  finds the topics that a statement reads, with Spark's own parser
views      pins the range of each topic and makes a view of it, before Spark reads it
session    runs a local Spark session and returns the rows of a query
values     converts the values of Spark's rows to JSON values
failure    converts Spark's exceptions to errors of rmqcli
"""
