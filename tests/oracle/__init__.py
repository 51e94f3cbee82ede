"""The algorithms once more in plain Python, written from the papers alone.

Of the package they take plans and keyed bits only.
"""
