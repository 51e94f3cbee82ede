"""The default part of a budget for counts, for forms that launch a job without NumPy."""

# With 0.15 about 7 % fewer n-grams are released.
COUNT_SHARE = 0.15
