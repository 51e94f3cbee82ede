"""Differentially private n-grams, length by length."""
