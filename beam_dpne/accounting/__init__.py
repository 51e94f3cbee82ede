"""The privacy budget of several releases about one population.

`expense` has what one release spends, by its plan or its ledger. `composition` adds expenses up, and
divides a budget among releases to come. `population` says which ledgers must be composed together, and
which count once. `budget` is a folder with a cap and the ledgers of the releases that count towards it.
Nothing here reads private data: it sees ledgers and plans only.
"""
