"""Numbers of users who hold each released n-gram or item, measured in one more pass."""
