"""What travels between the steps: batches, sets as side inputs, rows."""
