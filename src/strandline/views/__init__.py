"""SQL as data: programs and queries are parsed, checked and planned before any engine sees them.

allow        pure  the only statements, clauses and functions that a program or a query may use
answer       pure  answers a small part of SQL over Arrow tables, for the reference engine
arithmetic   pure  numbers as Spark's ANSI mode adds, multiplies, divides and compares them
casts        pure  values as Spark's ANSI mode casts them
check        pure  a whole program held against its rules, and its views planned
declared     pure  what a program declares: tables, queries of views, sinks
expression   pure  compiles one SQL expression to a function over rows
functions    pure  the functions of Spark that are allowed, and why others are not
grouping     pure  GROUP BY with SUM, COUNT, MIN and MAX, for the reference engine
linear       pure  queries whose changes are a map of their inputs' changes
options      pure  what may be said in OPTIONS, and secrets that may not
order        pure  views in an order in which each comes after what it reads
parse        pure  the text of a program to a program, or every error in it by line
planning     pure  views planned: each checked, linear or full, and hashed
program      pure  a checked program: what a pipeline runs
render       pure  a program back to text that parses to the same program
repeat       pure  queries that would answer differently when they are computed again
rewrite      pure  a view's query over the relations of one transaction
scope        pure  which collections a query reads, and what its columns are called
sqltext      pure  text to tokens and trees and back, so that nothing else needs the parser
sqltypes     pure  the types of Spark's SQL as Arrow types, and back
statements   pure  one CREATE statement at a time, from tokens to what it declares
tokens       pure  a cursor over the tokens of one statement
troubles     pure  what is wrong with a program, by line, with what to do about it
"""
