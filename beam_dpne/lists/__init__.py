"""Public lists: known n-grams, public counts and stop lists, as they are read and counted."""
