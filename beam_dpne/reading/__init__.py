"""Reading users' documents from files, and writing the records that were rejected.

`options` has the parameters and is loaded without Beam; `transform` has `ReadDocuments`.
"""
