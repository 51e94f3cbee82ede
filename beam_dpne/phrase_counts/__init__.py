"""The numbers of users of the phrases of a public list."""
