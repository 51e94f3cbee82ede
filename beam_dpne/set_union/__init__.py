"""Differentially private set union: the items that many users have."""
