"""The privacy budget of several releases about one population.

`spending` has the expense of one release, `composition` adds expenses up, and `division` divides a
budget among releases to come. `budget` is a budget with its releases, and `budget_file` keeps one in a
file. Nothing here reads private data: it sees ledgers and plans only.
"""
